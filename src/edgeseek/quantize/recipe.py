"""Which scheme each matrix gets: built-in mixtures, one scheme for all, or a TOML file of the user.

A recipe file maps globs of package tensor names to schemes, first match first:

    default = "q4k"
    [[rule]]
    tensors = "layers.*.attn.v.weight"
    scheme = "q6k"

Knows names and shapes, nothing of values.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import cast

from edgeseek.errors import UsageError
from edgeseek.quantize.schemes import GROUP, SCHEMES, Scheme
from edgeseek.toml import load_toml

Shapes = Mapping[str, tuple[int, ...]]
#: Bits a weight that the built-in `int4` recipe may use on average, over all matrices.
INT4_BITS = 4.6


@dataclass(frozen=True)
class Rule:
    """Matrices whose names match the glob `tensors` get `scheme`."""

    tensors: str
    scheme: Scheme


@dataclass(frozen=True)
class Recipe:
    """`rules` in order, then `default`."""

    name: str
    default: Scheme
    rules: tuple[Rule, ...] = ()

    def scheme(self, name: str) -> Scheme:
        """The scheme of the matrix of that package name."""
        for rule in self.rules:
            if fnmatch.fnmatchcase(name, rule.tensors):
                return rule.scheme
        return self.default

    def unmatched(self, names: Sequence[str]) -> list[str]:
        """Globs that match none of `names`."""
        return [r.tensors for r in self.rules if not any(fnmatch.fnmatchcase(n, r.tensors) for n in names)]


def parse_recipe(what: str) -> Recipe | None:
    """A scheme's name, or a path that ends in .toml; None for `int4`, which depends on the model.

    Raises UsageError for what is neither, and for a recipe file that is malformed, naming the entry.
    """
    if what == "int4":
        return None
    if what in SCHEMES:
        return Recipe(what, cast("Scheme", what))
    if what.endswith(".toml"):
        return read_recipe(Path(what))
    raise UsageError(
        f"cannot quantize to {what!r}; give int4, a recipe file (.toml) or a scheme: {', '.join(SCHEMES)}"
    )


def read_recipe(path: Path) -> Recipe:
    """The recipe in a TOML file. Raises UsageError, naming file and entry."""
    table = load_toml(path)
    unknown = sorted(set(table) - {"default", "rule"})
    if unknown:
        raise UsageError(f"{path}: unknown key {unknown[0]!r}; a recipe has default and [[rule]] entries")
    if "default" not in table:
        raise UsageError(
            f'{path}: there is no default; say which scheme all others get, like default = "q4k"'
        )
    entries = table.get("rule", [])
    if not isinstance(entries, list):
        raise UsageError(f"{path}: rule is no list; write each as [[rule]]")
    rules = tuple(_rule(f"{path}: rule {i + 1}", entry) for i, entry in enumerate(entries))
    return Recipe(path.stem, _scheme(f"{path}: default", table["default"], None), rules)


def _rule(where: str, entry: object) -> Rule:
    if not isinstance(entry, dict):
        raise UsageError(f"{where} is no table")
    unknown = sorted(set(entry) - {"tensors", "scheme", "group_size"})
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]!r}; a rule has tensors, scheme and group_size")
    tensors = entry.get("tensors")
    if not isinstance(tensors, str) or not tensors:
        raise UsageError(f"{where}: tensors is {tensors!r}, not a glob of tensor names")
    return Rule(tensors, _scheme(where, entry.get("scheme"), entry.get("group_size")))


def _scheme(where: str, name: object, group_size: object) -> Scheme:
    if not isinstance(name, str) or name not in SCHEMES:
        raise UsageError(f"{where}: unknown scheme {name!r}; schemes are {', '.join(SCHEMES)}")
    size = 16 if name == "q6k" else 32
    if group_size is not None and group_size != size:
        raise UsageError(f"{where}: {name} has groups of {size} columns, not {group_size!r}")
    return cast("Scheme", name)


def fitting(scheme: Scheme, columns: int) -> Scheme:
    """`scheme`, or the next finer one of 32-column blocks where `columns` do not fill its blocks of 256."""
    if SCHEMES[scheme].block <= GROUP or columns % SCHEMES[scheme].block == 0:
        return scheme
    return _NARROWER[scheme]


def int4_recipe(shapes: Shapes, bits: float = INT4_BITS) -> Recipe:
    """The mixture for at most `bits` a weight on average over all matrices.

    `shapes` are the matrices' (rows, columns) by package name. Everything starts at 4.5 bits; what gains most
    for its bits (`_REFINED`) is refined first, step by step, as far as the bits reach. Raises UsageError for
    fewer bits than 4.5.
    """
    if not LEAST_BITS <= bits <= MOST_BITS:
        raise UsageError(f"int4 can use {LEAST_BITS:g} to {MOST_BITS:g} bits a weight, not {bits:g}")
    chosen: dict[str, Scheme] = {name: _steps(shape[1])[0] for name, shape in shapes.items()}
    left = bits * sum(rows * columns for rows, columns in shapes.values())
    left -= sum(_bits(shapes[name], scheme) for name, scheme in chosen.items())
    for globs in _REFINED:
        names = [name for glob in globs for name in fnmatch.filter(shapes, glob)]
        for step in range(1, len(_BY_256)):
            for name in names:
                scheme = _steps(shapes[name][1])[step]
                more = _bits(shapes[name], scheme) - _bits(shapes[name], chosen[name])
                if 0 < more <= left:
                    left -= more
                    chosen[name] = scheme
    most = Counter(chosen.values()).most_common(1)[0][0] if chosen else _BY_256[0]
    return Recipe("int4", most, tuple(Rule(n, s) for n, s in chosen.items() if s != most))


#: What `int4_recipe` can spend.
LEAST_BITS, MOST_BITS = 4.5, 8.5
#: Steps of refinement for columns that fill blocks of 256, and for others.
_BY_256: tuple[Scheme, ...] = ("q4k", "q4z", "q5k", "q6k")
_BY_32: tuple[Scheme, ...] = ("q4", "q4z", "q5", "q8")
_NARROWER: Mapping[Scheme, Scheme] = MappingProxyType({"q4k": "q4z", "q5k": "q5z", "q6k": "q8"})
#: Measured on models that had never been quantized, each kind refined by itself: the head and the table lower
#: the divergence several times as much for their bits as anything else (docs/quantize.md has the figures).
_REFINED: tuple[tuple[str, ...], ...] = (
    ("head.weight", "embed.weight"),
    ("*.attn.v.weight",),
    ("*.attn.k.weight",),
    ("*.attn.q.weight",),
    ("*.mlp.down.weight",),
    ("*",),
)


def _steps(columns: int) -> tuple[Scheme, ...]:
    return _BY_256 if columns % SCHEMES["q4k"].block == 0 else _BY_32


def _bits(shape: tuple[int, ...], scheme: Scheme) -> float:
    return shape[0] * shape[1] * SCHEMES[scheme].bits_per_weight

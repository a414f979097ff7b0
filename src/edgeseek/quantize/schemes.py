"""The weight schemes of package format 1 and how many bytes each takes.

Owns the names and the order of the fields inside a block; `package/FORMAT.md` describes the same in
words. Knows nothing of where values come from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, get_args

from edgeseek.errors import UsageError

Scheme = Literal["f32", "f16", "q8", "q4", "q4z", "q5", "q5z", "q4k", "q5k", "q6k"]
Layout = Literal["tiles", "rows", "flat"]

LAYOUT_NAMES: tuple[Layout, ...] = get_args(Layout)

#: Schemes that plain rounding can produce from floats, best first: what `--scheme` accepts.
ROUNDING_SCHEMES: tuple[Scheme, ...] = ("f32", "f16", "q8", "q4")

#: Output channels that are interleaved in a tile.
TILE_ROWS = 16
#: Columns that share one group of codes.
GROUP = 32


@dataclass(frozen=True)
class Field:
    """A part of a block ahead of its codes: `runs` items of `width` bytes per channel, as [runs][I]."""

    name: str
    runs: int
    width: int


@dataclass(frozen=True)
class SchemeSpec:
    """The parts of one block: `fields`, then for each group of 32 columns `group_words` 4-byte items.

    `block` is in columns. `code_bits` is 0 for the float schemes, whose single field holds the value.
    """

    name: Scheme
    block: int
    fields: tuple[Field, ...]
    group_words: int
    code_bits: int

    @property
    def groups(self) -> int:
        """Groups of 32 columns in a block; 0 for the float schemes."""
        return self.block // GROUP

    @property
    def field_bytes(self) -> int:
        """Bytes of a block ahead of its codes, per channel."""
        return sum(field.runs * field.width for field in self.fields)

    @property
    def block_bytes(self) -> int:
        """Bytes of a block per channel."""
        return self.field_bytes + self.groups * self.group_words * 4

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per weight, without padding of rows or columns."""
        return self.block_bytes * 8 / self.block


_D = Field("d", 1, 2)
_M = Field("m", 1, 2)
_DMIN = Field("dmin", 1, 2)
_SUB_SCALES = (Field("sc_lo", 4, 1), Field("sc_hi", 2, 1), Field("mn_lo", 4, 1), Field("mn_hi", 2, 1))

SCHEMES: Mapping[str, SchemeSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            SchemeSpec("f32", 1, (Field("value", 1, 4),), 0, 0),
            SchemeSpec("f16", 1, (Field("value", 1, 2),), 0, 0),
            SchemeSpec("q8", 32, (_D,), 8, 8),
            SchemeSpec("q4", 32, (_D,), 4, 4),
            SchemeSpec("q4z", 32, (_D, _M), 4, 4),
            SchemeSpec("q5", 32, (_D,), 5, 5),
            SchemeSpec("q5z", 32, (_D, _M), 5, 5),
            SchemeSpec("q4k", 256, (_D, _DMIN, *_SUB_SCALES), 4, 4),
            SchemeSpec("q5k", 256, (_D, _DMIN, *_SUB_SCALES), 5, 5),
            SchemeSpec("q6k", 256, (_D, Field("sc", 16, 1)), 6, 6),
        )
    }
)


def parse_rounding_scheme(name: str) -> Scheme:
    """The scheme called `name`, as a user may ask for it.

    Raises UsageError naming the choices where plain rounding cannot produce it.
    """
    for scheme in ROUNDING_SCHEMES:
        if scheme == name:
            return scheme
    raise UsageError(f"unknown scheme {name!r}; choose one of {', '.join(ROUNDING_SCHEMES)}")


def interleave(layout: str) -> int:
    """Channels that are interleaved in `layout`: I of FORMAT.md."""
    return TILE_ROWS if layout == "tiles" else 1


def block_grid(scheme: str, layout: str, shape: Sequence[int]) -> tuple[int, int]:
    """(row tiles, blocks along K) of a matrix of `shape` = (rows, columns), both rounded up."""
    rows, columns = shape
    return -(-rows // interleave(layout)), -(-columns // SCHEMES[scheme].block)


def stored_bytes(scheme: str, layout: str, shape: Sequence[int]) -> int:
    """Bytes that a tensor of the logical `shape` takes, padded rows and columns included.

    The zero bytes that align the next tensor in the file are not counted. Raises ValueError for a
    combination that the format does not have.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"unknown scheme {scheme!r}")
    if any(size < 1 for size in shape):
        raise ValueError(f"a shape of positive sizes is needed, found {tuple(shape)}")
    spec = SCHEMES[scheme]
    if layout == "flat":
        if len(shape) != 1 or spec.code_bits:
            raise ValueError(f"layout 'flat' holds float vectors, not {scheme} of shape {tuple(shape)}")
        return shape[0] * spec.block_bytes
    if layout not in LAYOUT_NAMES or len(shape) != 2:
        raise ValueError(f"layout {layout!r} cannot hold a tensor of shape {tuple(shape)}")
    tiles, blocks = block_grid(scheme, layout, shape)
    return tiles * blocks * interleave(layout) * spec.block_bytes

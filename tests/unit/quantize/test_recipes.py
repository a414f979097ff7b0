"""Recipes say which scheme each matrix gets; the built-in one stays within its bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgeseek.errors import UsageError
from edgeseek.quantize.recipe import Recipe, Rule, fitting, int4_recipe, parse_recipe, read_recipe
from edgeseek.quantize.schemes import SCHEMES

LAYERS = range(4)


def shapes(hidden: int, inner: int, vocab: int, *, tied: bool) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"embed.weight": (vocab, hidden)}
    for layer in LAYERS:
        for part in ("attn.q", "attn.o"):
            found[f"layers.{layer}.{part}.weight"] = (hidden, hidden)
        for part in ("attn.k", "attn.v"):
            found[f"layers.{layer}.{part}.weight"] = (hidden // 4, hidden)
        for part in ("mlp.gate", "mlp.up"):
            found[f"layers.{layer}.{part}.weight"] = (inner, hidden)
        found[f"layers.{layer}.mlp.down.weight"] = (hidden, inner)
    if not tied:
        found["head.weight"] = (vocab, hidden)
    return found


def average(recipe: Recipe, all_shapes: dict[str, tuple[int, ...]]) -> float:
    sizes = {name: rows * columns for name, (rows, columns) in all_shapes.items()}
    return sum(SCHEMES[recipe.scheme(n)].bits_per_weight * size for n, size in sizes.items()) / sum(
        sizes.values()
    )


@pytest.mark.parametrize("bits", [4.5, 4.6, 4.9, 5.5, 6.6])
@pytest.mark.parametrize("hidden", [512, 320])
@pytest.mark.parametrize("tied", [False, True])
def test_int4_uses_nearly_the_bits_it_may_and_never_more(bits: float, hidden: int, tied: bool) -> None:
    matrices = shapes(hidden, 3 * hidden, 4096, tied=tied)
    found = average(int4_recipe(matrices, bits), matrices)
    assert found <= bits
    assert found > bits - 0.12 or bits > 6


def test_int4_refines_the_head_before_anything_else() -> None:
    matrices = shapes(512, 1536, 1024, tied=False)
    recipe = int4_recipe(matrices, 4.65)
    assert recipe.scheme("head.weight") in ("q4z", "q5k", "q6k")
    assert recipe.scheme("layers.0.mlp.gate.weight") == "q4k"


def test_more_bits_never_make_the_head_coarser() -> None:
    matrices = shapes(512, 1536, 8192, tied=True)
    bits = [
        SCHEMES[int4_recipe(matrices, 4.5 + i / 20).scheme("embed.weight")].bits_per_weight for i in range(60)
    ]
    assert bits == sorted(bits)
    assert bits[-1] == 6.5625


def test_int4_takes_schemes_that_the_columns_fill() -> None:
    matrices = shapes(320, 960, 1024, tied=False)
    recipe = int4_recipe(matrices, 5.0)
    assert {SCHEMES[recipe.scheme(name)].block for name in matrices} == {32}


def test_int4_refuses_bits_that_it_cannot_keep_to() -> None:
    with pytest.raises(UsageError, match=r"int4 can use 4\.5 to 8\.5 bits a weight, not 3"):
        int4_recipe(shapes(512, 1536, 1024, tied=True), 3)


@pytest.mark.parametrize(
    ("wanted", "columns", "stored"),
    [("q4k", 512, "q4k"), ("q4k", 320, "q4z"), ("q6k", 40, "q8"), ("q4", 40, "q4")],
)
def test_columns_that_do_not_fill_256_get_blocks_of_32(wanted: str, columns: int, stored: str) -> None:
    assert fitting(wanted, columns) == stored  # type: ignore[arg-type]


def test_the_first_rule_that_matches_counts(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'default = "q4"\n[[rule]]\ntensors = "*.attn.v.weight"\nscheme = "q6k"\ngroup_size = 16\n'
        '[[rule]]\ntensors = "layers.0.*"\nscheme = "q8"\n'
    )
    recipe = read_recipe(path)
    assert recipe == Recipe("mine", "q4", (Rule("*.attn.v.weight", "q6k"), Rule("layers.0.*", "q8")))
    assert recipe.scheme("layers.0.attn.v.weight") == "q6k"
    assert recipe.scheme("layers.0.attn.q.weight") == "q8"
    assert recipe.scheme("layers.1.attn.q.weight") == "q4"
    assert recipe.unmatched(["layers.1.attn.v.weight"]) == ["layers.0.*"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'there is no default; say which scheme all others get, like default = "q4k"'),
        ('default = "q3"', "default: unknown scheme 'q3'; schemes are f32, f16, q8, q4, "),
        ('default = "q4"\nrules = 1', "unknown key 'rules'; a recipe has default and"),
        ('default = "q4"\nrule = 1', "rule is no list"),
        ('default = "q4"\n[[rule]]\nscheme = "q8"', "rule 1: tensors is None, not a glob"),
        ('default = "q4"\n[[rule]]\ntensors = "*"\nscheme = "q8"\nsize = 1', "rule 1: unknown key 'size'"),
        (
            'default = "q4"\n[[rule]]\ntensors = "*"\nscheme = "q8"\ngroup_size = 64',
            "rule 1: q8 has groups of 32 columns, not 64",
        ),
    ],
)
def test_a_malformed_recipe_is_refused_with_the_entry(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_recipe(path)
    assert words in str(error.value)
    assert "bad.toml" in str(error.value)


def test_what_is_no_recipe_is_refused_with_the_choices() -> None:
    assert parse_recipe("int4") is None
    assert parse_recipe("q5k") == Recipe("q5k", "q5k")
    with pytest.raises(
        UsageError, match=r"cannot quantize to 'int3'; give int4, a recipe file \(.toml\) or a scheme"
    ):
        parse_recipe("int3")

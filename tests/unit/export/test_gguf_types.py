"""Mixtures are those of llama.cpp's quantize, and a type that does not fit is replaced as there."""

from __future__ import annotations

import pytest

from edgeseek.architectures import ModelConfig
from edgeseek.errors import UsageError
from edgeseek.export.gguf_types import GgufType, file_type, fitting, mixture

CONFIG = ModelConfig(
    architecture="llama",
    vocab_size=1000,
    hidden_size=256,
    intermediate_size=768,
    num_layers=16,
    num_heads=8,
    num_kv_heads=2,
    head_dim=32,
    max_context=1024,
    rms_eps=1e-5,
)


def of_layers(kind: str, part: str) -> str:
    """The type of `part` in each layer, by its third character: 4, 5 or 6."""
    choose = mixture(kind, CONFIG)
    return "".join(choose(f"layers.{layer}.{part}.weight", (256, 256))[1] for layer in range(16))


@pytest.mark.parametrize(
    ("kind", "part", "types"),
    [
        ("Q4_K_M", "attn.v", "6644644644644666"),
        ("Q4_K_M", "mlp.down", "6644644644644666"),
        ("Q4_K_M", "attn.q", "4" * 16),
        ("Q4_K_S", "attn.v", "5555" + "4" * 12),
        ("Q4_K_S", "mlp.down", "55" + "4" * 14),
        ("Q4_0", "mlp.down", "4" * 16),
    ],
)
def test_layers_of_a_mixture(kind: str, part: str, types: str) -> None:
    assert of_layers(kind, part) == types


@pytest.mark.parametrize(("tied", "output"), [(True, "embed.weight"), (False, "head.weight")])
def test_the_output_matrix_is_wider(tied: bool, output: str) -> None:
    config = CONFIG.with_changes(tied_embeddings=tied)
    assert mixture("Q4_0", config)(output, (1000, 256)) == "Q6_K"
    assert mixture("Q4_0", config)("embed.weight", (1000, 256)) == ("Q6_K" if tied else "Q4_0")
    assert mixture("Q8_0", config)(output, (1000, 256)) == "Q8_0"
    assert mixture("F16", config)(output, (1000, 256)) == "F16"


@pytest.mark.parametrize(
    ("wanted", "columns", "written"),
    [
        ("Q4_K", 512, "Q4_K"),
        ("Q4_K", 576, "Q5_0"),
        ("Q5_K", 576, "Q5_1"),
        ("Q6_K", 576, "Q8_0"),
        ("Q4_K", 100, "F16"),
        ("Q4_0", 100, "F16"),
        ("F16", 7, "F16"),
    ],
)
def test_a_type_that_does_not_fit_is_replaced(wanted: GgufType, columns: int, written: str) -> None:
    assert fitting(wanted, columns) == written


def test_the_file_is_named_for_the_type_that_takes_most() -> None:
    assert file_type({"Q4_K": 500, "Q6_K": 300, "F32": 10}) == 15


def test_an_unknown_mixture_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown GGUF type 'Q3_K_M'; choose one of F32, F16"):
        mixture("Q3_K_M", CONFIG)

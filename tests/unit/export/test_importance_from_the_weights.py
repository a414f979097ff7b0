"""Without a text, a column's importance follows from norms and from the weights that feed it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeseek.export.moments import estimated_importance
from edgeseek.export.source import open_source
from tests.make_models.tiny import CASES, write


@pytest.mark.parametrize("name", ["llama-tied", "llama-biases", "qwen2-untied"])
def test_every_matrix_that_is_multiplied_has_one(name: str, tmp_path: Path) -> None:
    with open_source(write(CASES[name], tmp_path / "folder")) as source:
        found = estimated_importance(source)
        lookup = set() if source.config.tied_embeddings else {"embed.weight"}
        matrices = {name for name, tensor in source.tensors.items() if len(tensor.shape) == 2}
        assert found.keys() == matrices - lookup
        for matrix, importance in found.items():
            assert importance.shape == (source.tensors[matrix].shape[1],)
            assert (importance > 0).all()


def test_a_column_that_the_norm_turns_up_counts_with_its_square(tmp_path: Path) -> None:
    embedding = np.random.RandomState(1).standard_normal((320, 64)).astype(np.float32)
    gains = np.ones(64, np.float32)
    gains[5] = 4.0
    names = ("model.embed_tokens.weight", "model.layers.0.input_layernorm.weight")
    folder = write(
        CASES["llama-tied"], tmp_path / "folder", dict(zip(names, (embedding, gains), strict=True))
    )
    with open_source(folder) as source:
        query = estimated_importance(source)["layers.0.attn.q.weight"]
    stream = (embedding**2).mean(axis=0)
    np.testing.assert_allclose(query, gains**2 * stream / stream.mean(), rtol=1e-5)


def test_it_predicts_the_moments_of_random_inputs(tmp_path: Path) -> None:
    """Down's input, against a simulation of the layer with independent normal inputs."""
    with open_source(write(CASES["llama-biases"], tmp_path / "folder")) as source:
        found = estimated_importance(source)
        rng = np.random.RandomState(2)
        normed = rng.standard_normal((40000, 96)) * np.sqrt(found["layers.0.mlp.gate.weight"])
        gate, up = (
            normed @ source.tensors[f"layers.0.mlp.{part}.weight"].floats(0, 112).T
            + source.tensors[f"layers.0.mlp.{part}.bias"].floats(0, 1)
            for part in ("gate", "up")
        )
        inner = gate / (1 + np.exp(-gate)) * up
    ratio = (inner**2).mean(axis=0) / found["layers.0.mlp.down.weight"]
    assert 0.6 < np.median(ratio) < 1.6


def test_a_model_of_another_shape_has_no_estimate(tmp_path: Path) -> None:
    with open_source(write(CASES["llama-tied"], tmp_path / "folder")) as source:
        tensors = {name: tensor for name, tensor in source.tensors.items() if "mlp.gate" not in name}
        source.tensors = tensors  # type: ignore[misc]
        assert estimated_importance(source) == {}

"""kv_b becomes each head's k_b, transposed, and v_b; rotated rows are put in order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeseek.architectures import parse_config, tensor_rules
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package import open_package
from edgeseek.package.pieces import make_piece, row_ranges
from edgeseek.package.plan import plan_tensors
from edgeseek.quantize.packing import unpack
from tests.make_models.latent import Latent
from tests.make_models.latent_gguf import gguf_metadata, gguf_tensors
from tests.make_models.tiny import CASES, tensors
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.package.tiny_checkpoints import gguf_tensor, gguf_values, make_package, package_values

#: Heads whose latent vector fills blocks of 256.
WIDE = replace(CASES["deepseek-v2-plain-queries"], latent=Latent(256, 32, 16, 48), layers=1)


def float_checkpoint(kind: Any, config: dict[str, Any], values: dict[str, Any]) -> FakeCheckpoint:
    stored = {
        name: FakeTensor(
            name,
            "F32",
            value.shape,
            value.reshape(-1 if value.ndim > 1 else 1, value.shape[-1]).view(np.uint8),
        )
        for name, value in values.items()
    }
    return FakeCheckpoint(kind, config, stored)


def gguf_checkpoint(*, split: bool, types: dict[str, str]) -> FakeCheckpoint:
    """WIDE as a GGUF, its tensors of a name in `types` being random blocks of that type."""
    checkpoint = float_checkpoint("gguf", gguf_metadata(WIDE, split=split), gguf_tensors(WIDE, split=split))
    made = dict(checkpoint.tensors)
    for seed, (name, tensor) in enumerate(checkpoint.tensors.items()):
        dtype = types.get(name.split(".")[-2])
        if dtype is not None:
            rows = gguf_tensor(name, dtype, (int(np.prod(tensor.shape[:-1])), tensor.shape[-1]), seed)
            made[name] = FakeTensor(name, dtype, tensor.shape, rows.data)
    return replace(checkpoint, tensors=made)


def test_the_halves_of_kv_b_at_f32_are_its_values(tmp_path: Path) -> None:
    make_package(float_checkpoint("huggingface", WIDE.config(), tensors(WIDE)), tmp_path / "p", scheme="f32")
    kv_b = tensors(WIDE)["model.layers.0.self_attn.kv_b_proj.weight"].reshape(4, 32 + 48, 256)
    with open_package(tmp_path / "p") as package:
        k_b, v_b = (package_values(package, f"layers.0.attn.{part}_b.weight") for part in "kv")
    np.testing.assert_array_equal(k_b.reshape(4, 256, 32), kv_b[:, :32].swapaxes(1, 2))
    np.testing.assert_array_equal(v_b.reshape(4, 48, 256), kv_b[:, 32:])


def test_only_rotated_rows_change_places(tmp_path: Path) -> None:
    make_package(float_checkpoint("huggingface", WIDE.config(), tensors(WIDE)), tmp_path / "p", scheme="f32")
    source = tensors(WIDE)
    order = [*range(0, 16, 2), *range(1, 16, 2)]
    q = source["model.layers.0.self_attn.q_proj.weight"].reshape(4, 48, 96)
    kv_a = source["model.layers.0.self_attn.kv_a_proj_with_mqa.weight"]
    with open_package(tmp_path / "p") as package:
        got_q = package_values(package, "layers.0.attn.q.weight").reshape(4, 48, 96)
        got_kv_a = package_values(package, "layers.0.attn.kv_a.weight")
    np.testing.assert_array_equal(got_q[:, :32], q[:, :32])
    np.testing.assert_array_equal(got_q[:, 32:], q[:, 32:][:, order])
    np.testing.assert_array_equal(got_kv_a[:256], kv_a[:256])
    np.testing.assert_array_equal(got_kv_a[256:], kv_a[256:][order])


def test_a_quantized_kv_b_keeps_its_values_rows_and_its_keys_are_reported_as_requantized(
    tmp_path: Path,
) -> None:
    checkpoint = gguf_checkpoint(split=False, types={"attn_kv_b": "Q4_K"})
    report = make_package(checkpoint, tmp_path / "p")
    stored = gguf_values(checkpoint.tensors["blk.0.attn_kv_b.weight"]).reshape(4, 32 + 48, 256)
    with open_package(tmp_path / "p") as package:
        records = package.manifest.tensors
        k_b, v_b = (package_values(package, f"layers.0.attn.{part}_b.weight") for part in "kv")
    assert (records["layers.0.attn.v_b.weight"].scheme, records["layers.0.attn.v_b.weight"].exact) == (
        "q4k",
        True,
    )
    np.testing.assert_array_equal(v_b.reshape(4, 48, 256), stored[:, 32:])
    record = records["layers.0.attn.k_b.weight"]
    assert (record.scheme, record.exact) == ("q8", False)
    keys = stored[:, :32].swapaxes(1, 2).reshape(-1, 32)
    steps = np.abs(keys).max(axis=1, keepdims=True) / 127
    assert (np.abs(k_b - keys) <= 0.51 * steps).all()
    assert record.error == pytest.approx(np.linalg.norm(k_b - keys) / np.linalg.norm(keys), rel=1e-4)
    outcomes = {outcome.name: outcome.action for outcome in report.outcomes}
    assert outcomes["layers.0.attn.k_b.weight"] == "requantized"
    assert outcomes["layers.0.attn.v_b.weight"] == "kept"
    assert "requantized" in report.summary


def test_a_gguf_with_both_halves_keeps_both(tmp_path: Path) -> None:
    checkpoint = gguf_checkpoint(split=True, types={"attn_k_b": "Q5_0", "attn_v_b": "Q6_K"})
    make_package(checkpoint, tmp_path / "p")
    with open_package(tmp_path / "p") as package:
        for part, scheme in (("k_b", "q5"), ("v_b", "q6k")):
            assert package.manifest.tensors[f"layers.0.attn.{part}.weight"].scheme == scheme
            assert package.manifest.tensors[f"layers.0.attn.{part}.weight"].exact
            np.testing.assert_array_equal(
                package_values(package, f"layers.0.attn.{part}.weight"),
                gguf_values(checkpoint.tensors[f"blk.0.attn_{part}.weight"]),
            )


@pytest.mark.parametrize("name", ["layers.0.attn.k_b.weight", "layers.0.attn.v_b.weight"])
def test_the_size_of_a_piece_changes_nothing(name: str) -> None:
    checkpoint = gguf_checkpoint(split=False, types={"attn_kv_b": "Q8_0"})
    config = parse_config(checkpoint)
    plans = plan_tensors(config, tensor_rules(config, checkpoint), checkpoint, None)
    plan = next(plan for plan in plans if plan.rule.name == name)
    found = []
    for weights in (1, 1 << 20):
        ranges = list(row_ranges(plan, weights))
        parts = [make_piece(plan, start, stop).data.reshape(-1) for start, stop in ranges]
        found.append((len(parts), np.concatenate(parts)))
    assert [count for count, _ in found] == [4, 1]
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert unpack(found[0][1], plan.scheme, plan.layout, plan.rule.shape).shape == plan.rule.shape


def test_sizes_the_core_lacks_are_named(tmp_path: Path) -> None:
    odd = replace(WIDE, latent=Latent(72, 32, 16, 48))
    checkpoint = float_checkpoint("huggingface", odd.config(), tensors(odd))
    with pytest.raises(UnsupportedCheckpointError, match="72, 32, 16, 48 dimensions .* multiples of 16"):
        make_package(checkpoint, tmp_path / "p")
    assert not (tmp_path / "p").exists()

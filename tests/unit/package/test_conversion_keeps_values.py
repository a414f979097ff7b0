from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors import safe_open

from edgeseek.architectures import ModelConfig, TensorRule
from edgeseek.checkpoints.base import LazyTensor
from edgeseek.errors import UnsupportedCheckpointError
from edgeseek.package import open_package, verify_package
from edgeseek.package.pieces import Piece, make_piece, restore_head_rows, row_ranges
from edgeseek.package.plan import PlannedTensor
from edgeseek.quantize.gguf_blocks import GGUF_BLOCKS
from edgeseek.quantize.packing import unpack
from edgeseek.quantize.report import square_sums
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor
from tests.unit.architectures.tiny_models import LLAMA_GGUF
from tests.unit.package.tiny_checkpoints import (
    float_tensor,
    float_values,
    folder,
    gguf_model,
    gguf_tensor,
    gguf_values,
    make_package,
    package_values,
)

_LINEARS = {
    "attn.q": "attn_q",
    "attn.k": "attn_k",
    "attn.v": "attn_v",
    "attn.o": "attn_output",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
}


def planned(source: LazyTensor, layout: str, *, heads: int = 0) -> PlannedTensor:
    """A plan that keeps a GGUF tensor as it is."""
    rule = TensorRule("layers.0.attn.q.weight", source.name, source.shape, "linear", unpermute_heads=heads)
    return PlannedTensor(rule, source, GGUF_BLOCKS[source.dtype].scheme, layout, "kept", True)


def pack_in_pieces(plan: PlannedTensor, weights: int) -> list[Piece]:
    return [make_piece(plan, start, stop) for start, stop in row_ranges(plan, weights)]


@pytest.mark.parametrize("layout", ["tiles", "rows"])
@pytest.mark.parametrize("dtype", GGUF_BLOCKS)
def test_pieces_of_a_tensor_join_to_the_source_values(dtype, layout):
    source = gguf_tensor("w", dtype, (41, 768), seed=3)
    plan = planned(source, layout)
    parts = pack_in_pieces(plan, 20 * 768)
    assert len(parts) == 3
    assert [part.last for part in parts] == [False, False, True]
    data = np.concatenate([part.data.reshape(-1) for part in parts])
    np.testing.assert_array_equal(unpack(data, plan.scheme, layout, (41, 768)), gguf_values(source))


def test_every_tensor_of_a_mixed_gguf_is_kept(tmp_path):
    types = {
        "token_embd": "Q8_0",
        "output": "F16",
        "attn_q": "Q4_0",
        "attn_k": "Q4_1",
        "attn_v": "Q5_0",
        "attn_output": "Q5_1",
        "ffn_up": "F32",
        "ffn_down": "BF16",
    }
    checkpoint = gguf_model(types, LLAMA_GGUF, default="Q4_0")
    report = make_package(checkpoint, tmp_path / "p")
    with open_package(tmp_path / "p") as package:
        schemes = {name: tensor.scheme for name, tensor in package.tensors.items() if "layers.1" not in name}
        assert schemes["embed.weight"] == "q8"
        assert schemes["head.weight"] == "f16"
        assert schemes["layers.0.mlp.up.weight"] == "f32"
        assert schemes["layers.0.mlp.down.weight"] == "f32"
        assert package.tensors["embed.weight"].layout == "rows"
        assert package.tensors["head.weight"].layout == "tiles"
        assert all(record.exact for record in package.manifest.tensors.values())
        expected = {"embed.weight": "token_embd.weight", "head.weight": "output.weight"}
        expected["final_norm.weight"] = "output_norm.weight"
        for layer in (0, 1):
            for name, short in _LINEARS.items():
                if name not in ("attn.q", "attn.k"):
                    expected[f"layers.{layer}.{name}.weight"] = f"blk.{layer}.{short}.weight"
            expected[f"layers.{layer}.attn_norm.weight"] = f"blk.{layer}.attn_norm.weight"
            expected[f"layers.{layer}.mlp_norm.weight"] = f"blk.{layer}.ffn_norm.weight"
        assert len(expected) + 4 == len(package.tensors)
        for name, source in expected.items():
            values = gguf_values(checkpoint.tensors[source])
            np.testing.assert_array_equal(package_values(package, name), values, err_msg=name)
    assert report.summary.endswith("converted 2 BF16 to f32 (exactly)")


def interleaved_by_gguf(rows: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to Q and K: the halves of each head alternate row by row."""
    halves = rows.reshape(heads, 2, rows.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.mark.parametrize(("heads", "head_dim"), [(1, 2), (4, 16), (3, 64), (5, 80), (2, 256)])
def test_interleaved_head_rows_are_restored(heads, head_dim):
    rows = np.arange(heads * head_dim * 3, dtype=np.int64).reshape(-1, 3).view(np.uint8)
    np.testing.assert_array_equal(restore_head_rows(interleaved_by_gguf(rows, heads), head_dim), rows)


@pytest.mark.parametrize("piece_rows", [1, 40, 1000])
def test_heads_are_restored_whole_whatever_the_size_of_a_piece(piece_rows):
    plain = gguf_tensor("q", "Q6_K", (5 * 24, 256), seed=9)
    assert plain.data is not None
    stored = FakeTensor("q", "Q6_K", plain.shape, interleaved_by_gguf(plain.data, 5))
    plan = planned(stored, "tiles", heads=5)
    data = np.concatenate([part.data.reshape(-1) for part in pack_in_pieces(plan, piece_rows * 256)])
    np.testing.assert_array_equal(unpack(data, "q6k", "tiles", plain.shape), gguf_values(plain))


def test_a_llama_gguf_gives_the_rows_of_the_folder_it_was_made_from(tmp_path):
    original = folder("F32")
    tensors = {}
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "model.layers": "blk",
    }
    for name, tensor in original.tensors.items():
        assert tensor.data is not None
        data = tensor.data
        if "q_proj" in name or "k_proj" in name:
            data = interleaved_by_gguf(data, 4 if "q_proj" in name else 2)
        for long, short in names.items():
            name = name.replace(long, short)
        tensors[name] = FakeTensor(name, "F32", tensor.shape, data)
    make_package(original, tmp_path / "folder", scheme="f32")
    make_package(FakeCheckpoint("gguf", LLAMA_GGUF, tensors), tmp_path / "gguf", scheme="f32")
    with open_package(tmp_path / "folder") as first, open_package(tmp_path / "gguf") as second:
        assert list(first.tensors) == list(second.tensors)
        for name, packed in first.tensors.items():
            np.testing.assert_array_equal(packed.data, second.tensors[name].data, err_msg=name)
        np.testing.assert_array_equal(
            package_values(first, "layers.1.attn.q.weight"),
            float_values(original.tensors["model.layers.1.self_attn.q_proj.weight"]),
        )


def test_a_permuted_bias_is_restored():
    vector = float_tensor("b", "F16", (64,), seed=1)
    assert vector.data is not None
    stored = interleaved_by_gguf(vector.data.reshape(64, 2), 4).reshape(1, -1)
    rule = TensorRule("layers.0.attn.q.bias", "b", (64,), "vector", unpermute_heads=4)
    plan = PlannedTensor(rule, FakeTensor("b", "F16", (64,), stored), "f32", "flat", "converted", True)
    data = make_piece(plan, 0, 1).data
    np.testing.assert_array_equal(data.reshape(-1).view(np.float32), float_values(vector))


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("scheme", [None, "f32", "f16", "q8", "q4"])
def test_float_checkpoints_are_rounded_as_asked(dtype, scheme, tmp_path):
    checkpoint = folder(dtype)
    report = make_package(checkpoint, tmp_path / "p", scheme=scheme)
    verify_package(tmp_path / "p")
    bounds = {"f32": 0.0, "f16": 3e-4, "q8": 8e-3, "q4": 0.12}
    with open_package(tmp_path / "p") as package:
        sources = {o.name: package.manifest.tensors[o.name] for o in report.outcomes}
        for name, record in sources.items():
            original = float_values(checkpoint.tensors[record.source_name])
            if len(record.shape) == 1:
                np.testing.assert_array_equal(package_values(package, name), original)
                continue
            table = name in ("embed.weight", "head.weight")
            wanted = "q8" if scheme is None or (scheme == "q4" and table) else scheme
            assert record.scheme == wanted
            error = square_sums(original, package_values(package, name)).relative_rms
            assert error <= bounds[wanted]
            if record.exact:
                assert (record.error, error) == (None, 0.0)
            else:
                assert record.error == pytest.approx(error, rel=1e-4, abs=1e-12)
                assert wanted != "f32"


def test_a_quantized_source_is_requantized_only_when_asked_and_says_so(tmp_path):
    checkpoint = gguf_model({"output": "Q8_0"}, LLAMA_GGUF, default="Q5_1")
    kept = make_package(checkpoint, tmp_path / "kept")
    assert kept.summary == "kept 16 matrices as stored (15 q5z, 1 q8); nothing converted or requantized"
    asked = make_package(checkpoint, tmp_path / "asked", scheme="q8")
    assert asked.summary.startswith(
        "kept 1 matrix as stored (1 q8); requantized 15 Q5_1 to q8 (relative error 0.0"
    )
    four = make_package(checkpoint, tmp_path / "four", scheme="q4")
    assert four.summary.startswith("kept 2 matrices as stored (1 q5z, 1 q8); requantized 14 Q5_1 to q4 (")
    floats = make_package(checkpoint, tmp_path / "floats", scheme="f32")
    assert "converted 15 Q5_1 to f32 (exactly)" in floats.summary
    with open_package(tmp_path / "kept") as first, open_package(tmp_path / "floats") as second:
        for name in first.tensors:
            np.testing.assert_array_equal(package_values(first, name), package_values(second, name))
        assert first.digest != second.digest


def test_a_tied_embedding_is_stored_once_in_head_layout(tmp_path):
    make_package(folder("F16", tied=True), tmp_path / "p")
    with open_package(tmp_path / "p") as package:
        assert package.tensors["embed.weight"].layout == "tiles"
        assert "head.weight" not in package.tensors


def test_the_container_opens_with_the_safetensors_package(tmp_path):
    make_package(folder("F16"), tmp_path / "p", scheme="f16")
    with (
        open_package(tmp_path / "p") as package,
        safe_open(tmp_path / "p" / "model.safetensors", "np") as file,
    ):
        assert set(file.keys()) == set(package.tensors)
        for name, tensor in package.tensors.items():
            stored = file.get_tensor(name)
            assert stored.dtype == (np.float32 if tensor.layout == "flat" else np.float16)
            data = stored.view(np.uint8)
            np.testing.assert_array_equal(data[: tensor.data.size], tensor.data)
            assert not data[tensor.data.size :].any()


def test_a_package_gives_back_what_it_was_given(tmp_path):
    progress: list[tuple[int, int]] = []
    make_package(folder(), tmp_path / "p")
    verify_package(tmp_path / "p", lambda done, total: progress.append((done, total)))
    with open_package(tmp_path / "p") as package:
        assert package.name == "tiny"
        assert isinstance(package.config, ModelConfig)
        assert package.config.num_layers == 2
        assert package.tokenizer_json == b'{"model": "placeholder"}'
        assert package.chat_template == "{{ messages }}"
        assert package.generation_config == {"eos_token_id": 2}
        assert package.source_digest == "5" * 64
        assert package.weight_bytes == sum(tensor.data.size for tensor in package.tensors.values())
        assert progress[-1] == (package.weight_bytes, package.weight_bytes)
        document = json.loads((tmp_path / "p" / "edgeseek.json").read_text())
        assert document["package_digest"] == package.digest
        with pytest.raises(ValueError, match="read-only"):
            package.tensors["embed.weight"].data[0] = 1
    assert sorted(path.name for path in (tmp_path / "p").iterdir()) == [
        "chat_template.jinja",
        "edgeseek.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
    ]


def test_views_outlive_the_package_they_came_from(tmp_path):
    make_package(folder(), tmp_path / "p")
    package = open_package(tmp_path / "p")
    view = package.tensors["embed.weight"].data
    before = view.copy()
    package.close()
    np.testing.assert_array_equal(view, before)


def test_the_same_source_gives_the_same_bytes(tmp_path):
    make_package(folder(), tmp_path / "a")
    make_package(folder(), tmp_path / "b")
    for name in ("model.safetensors", "edgeseek.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_values_that_a_scheme_cannot_hold_are_refused_with_the_tensor(tmp_path):
    checkpoint = folder("F32")
    broken = checkpoint.tensors["model.layers.1.mlp.up_proj.weight"]
    assert broken.data is not None
    broken.data.view(np.float32)[3, 5] = np.nan
    with pytest.raises(
        UnsupportedCheckpointError, match="'model.layers.1.mlp.up_proj.weight' cannot become q8"
    ):
        make_package(checkpoint, tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def test_a_stored_type_that_cannot_be_converted_is_named(tmp_path):
    checkpoint = folder("F32")
    name = "model.layers.0.mlp.up_proj.weight"
    tensors = {**checkpoint.tensors, name: FakeTensor(name, "I8", (96, 64))}
    with pytest.raises(UnsupportedCheckpointError, match=f"'{name}' is stored as I8"):
        make_package(FakeCheckpoint("huggingface", checkpoint.raw_config, tensors), tmp_path / "p")

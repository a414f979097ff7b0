"""Experts become tensors of their own, on pages of their own, from whatever they are stored as."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from edgeseek.checkpoints import open_checkpoint
from edgeseek.checkpoints.fp8 import e4m3_values
from edgeseek.errors import CheckpointFormatError, MissingTensorError, PackageFormatError
from edgeseek.package import Package, convert, open_package, verify_package
from edgeseek.package.container import LARGE_ALIGNMENT
from edgeseek.package.manifest import WEIGHTS_NAME
from edgeseek.package.reader import locate
from edgeseek.quantize.packing import unpack
from edgeseek.quantize.schemes import Scheme
from tests.make_models.experts_gguf import stored_tensors, write_gguf
from tests.make_models.tiny_experts import CASES, TinyExperts, tensors, write

#: Widths of whole blocks, as GGUF's quantized types need them.
WIDE = TinyExperts("wide", 41, hidden_size=64, intermediate_size=96, moe_intermediate_size=64, experts=4)


def packed(source: Path, target: Path, scheme: Scheme | None = None) -> Package:
    with open_checkpoint(source) as checkpoint:
        convert(
            checkpoint,
            target,
            name="tiny",
            tokenizer_json=b"{}",
            chat_template=None,
            generation_config={},
            scheme=scheme,
        )
    return open_package(target)


def values(package: Package, name: str) -> np.ndarray:
    tensor = package.tensors[name]
    return unpack(tensor.data, tensor.scheme, tensor.layout, tensor.shape)


def test_each_expert_starts_on_a_page_of_its_own(tmp_path: Path) -> None:
    with packed(write(CASES["greedy"], tmp_path / "folder"), tmp_path / "package") as package:
        places = locate(package.path / WEIGHTS_NAME, package.manifest)
        experts = {name: place for name, place in places.items() if ".experts." in name}
        assert len(experts) == 2 * 8 * 3
        assert all(place % LARGE_ALIGNMENT == 0 for place in experts.values())
        # An expert's three matrices follow each other.
        names = [name for name in places if name.startswith("layers.1.mlp.experts.")]
        assert names[3:6] == [f"layers.1.mlp.experts.1.{part}.weight" for part in ("gate", "up", "down")]
        assert sorted(names, key=places.__getitem__) == names
    verify_package(tmp_path / "package")


def test_an_expert_within_a_page_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    packed(write(CASES["corrected-unnormalized"], tmp_path / "folder"), folder).close()
    data = (folder / WEIGHTS_NAME).read_bytes()
    # As large as an expert, the shared one may start anywhere: exchange their places.
    names = [f'"layers.1.mlp.{part}.gate.weight":'.encode() for part in ("shared", "experts.0")]
    for old, new in ((names[0], b"<exchanged>"), (names[1], names[0]), (b"<exchanged>", names[1])):
        assert data.count(old) == 1
        data = data.replace(old, new)
    (folder / WEIGHTS_NAME).write_bytes(data)
    with pytest.raises(PackageFormatError, match=r"experts.0.gate.weight' starts.*no multiple of 16384"):
        open_package(folder)


def test_a_router_keeps_its_values_at_any_scheme(tmp_path: Path) -> None:
    case = CASES["greedy"]
    with packed(write(case, tmp_path / "folder"), tmp_path / "package", "q4") as package:
        router = package.tensors["layers.1.mlp.router.weight"]
        assert (router.scheme, router.layout) == ("f32", "tiles")
        kept = values(package, "layers.1.mlp.router.weight")
        assert kept.tobytes() == tensors(case)["model.layers.1.mlp.gate.weight"].tobytes()
        assert package.tensors["layers.1.mlp.experts.0.up.weight"].scheme == "q4"


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0"])
def test_quantized_stacks_are_kept_value_for_value(kind: str, tmp_path: Path) -> None:
    wanted = gguf.GGMLQuantizationType[kind]
    stacks = ("ffn_gate_exps", "ffn_up_exps", "ffn_down_exps")
    source = write_gguf(WIDE, tmp_path / "model.gguf", dict.fromkeys(stacks, wanted))
    stored = stored_tensors(WIDE)
    with packed(source, tmp_path / "package") as package:
        for part in ("gate", "up", "down"):
            stack = gguf.quants.quantize(stored[f"blk.2.ffn_{part}_exps.weight"], wanted)
            for expert in range(4):
                name = f"layers.2.mlp.experts.{expert}.{part}.weight"
                want = gguf.quants.dequantize(stack[expert], wanted)
                np.testing.assert_array_equal(values(package, name), want)
                assert package.manifest.tensors[name].exact


def test_a_missing_shard_of_experts_is_named(tmp_path: Path) -> None:
    folder = write(CASES["greedy"], tmp_path / "folder")
    (folder / "model.safetensors").unlink()
    every = tensors(CASES["greedy"])
    shards: dict[str, dict[str, np.ndarray]] = {}
    for name, value in every.items():
        number = 2 if ".experts.7." in name else 1
        shards.setdefault(f"model-0000{number}-of-00002.safetensors", {})[name] = value
    for shard, content in shards.items():
        save_file(content, folder / shard)
    weight_map = {name: shard for shard, content in shards.items() for name in content}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    packed(folder, tmp_path / "whole").close()
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(CheckpointFormatError, match="lacks the shard model-00002-of-00002.safetensors"):
        packed(folder, tmp_path / "package")
    assert not (tmp_path / "package").exists()


def test_a_stack_of_another_number_of_experts_is_named(tmp_path: Path) -> None:
    source = write_gguf(WIDE, tmp_path / "model.gguf")
    data = source.read_bytes()
    # The last use of the name is its value's key; the metadata say 4 experts, a uint32.
    key = b"deepseek.expert_count"
    place = data.index(key) + len(key) + 4
    assert data[place : place + 4] == (4).to_bytes(4, "little")
    source.write_bytes(data[:place] + (5).to_bytes(4, "little") + data[place + 4 :])
    with pytest.raises(MissingTensorError, match=r"has shape \[4, .*asks for \[5, "):
        packed(source, tmp_path / "package")


def test_fp8_weights_become_any_scheme(tmp_path: Path) -> None:
    case = replace(
        CASES["greedy"],
        routing={
            "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
        },
    )
    folder = write(case, tmp_path / "folder")
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    codes = np.arange(48 * 80, dtype=np.uint32).reshape(48, 80).astype(np.uint8) % 127
    scale = np.array([[0.01]], np.float32)
    _with_fp8(folder / "model.safetensors", name, codes, scale)
    want = e4m3_values()[codes] * scale
    with packed(folder, tmp_path / "package", "f32") as package:
        ours = "layers.1.mlp.experts.3.up.weight"
        assert values(package, ours).tobytes() == want.tobytes()
        assert package.manifest.tensors[ours].source_dtype == "F8_E4M3"
        assert package.manifest.tensors[ours].exact
    with packed(folder, tmp_path / "rounded") as package:
        assert package.tensors[ours].scheme == "q8"
        np.testing.assert_allclose(values(package, ours), want, atol=float(np.abs(want).max()) / 127)


def _with_fp8(path: Path, name: str, codes: np.ndarray, scale: np.ndarray) -> None:
    """Put 8-bit floats with their scales in place of a tensor; safetensors' numpy part has no such type."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__")
    parts = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        parts[key] = (entry["dtype"], entry["shape"], data[8 + length + begin : 8 + length + end])
    parts[name] = ("F8_E4M3", list(codes.shape), codes.tobytes())
    parts[f"{name}_scale_inv"] = ("F32", list(scale.shape), scale.tobytes())
    position, written = 0, {}
    for key, (dtype, shape, content) in parts.items():
        end = position + len(content)
        written[key] = {"dtype": dtype, "shape": shape, "data_offsets": [position, end]}
        position = end
    text = json.dumps(written).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(part[2] for part in parts.values()))

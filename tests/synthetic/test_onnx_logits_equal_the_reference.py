"""Exported graphs give the logits of transformers and of the package, with and without a past."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'edgeseek[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'edgeseek[onnx]'")

from edgeseek.export.gguf import write_gguf  # noqa: E402
from edgeseek.export.onnx import FAMILIES, write_onnx  # noqa: E402
from edgeseek.quantize.packing import unpack  # noqa: E402
from tests.make_models.reference import FIXTURES, PROMPT_TOKENS  # noqa: E402
from tests.make_models.tiny import CASES, prompt_ids, write  # noqa: E402
from tests.synthetic.models import backend_of, logits_of, package_of  # noqa: E402
from tests.synthetic.onnx_models import empty_past, logits_in_chunks, session_of, step  # noqa: E402

TOLERANCE = 1e-3
EXPORTED = [name for name, case in CASES.items() if case.architecture in FAMILIES]
ONE_BY_ONE = (7, *[1] * (PROMPT_TOKENS - 7))


def worst_difference(got: npt.NDArray[np.float32], want: npt.NDArray[np.float32]) -> float:
    assert got.shape == want.shape
    return float((np.abs(got - want).max(axis=-1) / np.abs(want).max(axis=-1)).max())


# The dynamic scaling depends on the planned context, which the fixture's transformers does not know.
@pytest.mark.parametrize("name", [name for name in EXPORTED if name != "llama-dynamic-rope"])
def test_f32_logits_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    report = write_onnx(write(CASES[name], tmp_path / "hf"), tmp_path / "out", precision="f32")
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        want = arrays["logits"]
    session, ids = session_of(report.graph), prompt_ids(CASES[name], PROMPT_TOKENS)
    for chunks in ((PROMPT_TOKENS,), (7, PROMPT_TOKENS - 7), ONE_BY_ONE):
        assert worst_difference(logits_in_chunks(session, ids, chunks), want) < TOLERANCE


@pytest.mark.parametrize("precision", ["f32", "f16"])
def test_a_scaling_by_context_is_that_of_the_longest_sequence(precision: str, tmp_path: Path) -> None:
    case = CASES["llama-dynamic-rope"]
    with package_of(case, tmp_path) as package:
        ids = prompt_ids(case, PROMPT_TOKENS)
        for context in (48, 64):
            want = logits_of(backend_of(package, context), ids)
            report = write_onnx(
                package.path, tmp_path / str(context), precision=precision, max_positions=context
            )
            got = logits_in_chunks(session_of(report.graph), ids, ONE_BY_ONE)
            assert worst_difference(got, want) < (TOLERANCE if precision == "f32" else 5e-3)


@pytest.mark.parametrize("name", EXPORTED)
def test_f16_logits_are_near_those_of_the_package(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with package_of(case, tmp_path) as package:
        ids = prompt_ids(case, PROMPT_TOKENS)
        want = logits_of(backend_of(package, package.config.max_context), ids)
        session = session_of(write_onnx(package.path, tmp_path / "out", precision="f16").graph)
    assert worst_difference(logits_in_chunks(session, ids, ONE_BY_ONE), want) < 5e-3


@pytest.mark.parametrize("name", ["llama-tied", "llama-biases", "qwen2-sliding-window", "qwen3-yarn-rope"])
def test_int4_without_rounded_activations_equals_its_dequantized_weights(name: str, tmp_path: Path) -> None:
    """Level 1 keeps activations float32, so that what differs is the graph and its weights alone."""
    case = CASES[name]
    with package_of(case, tmp_path, "q4") as package:
        plain = write_onnx(package.path, tmp_path / "f32", precision="f32")
        packed = write_onnx(package.path, tmp_path / "int4", precision="int4")
    assert packed.rounded == 0
    model = onnx.load(str(packed.graph))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                assert attribute.i == 4
                attribute.i = 1
    ids = prompt_ids(case, PROMPT_TOKENS)
    want = logits_in_chunks(session_of(plain.graph), ids, ONE_BY_ONE)
    got = session_of(model.SerializeToString())
    for chunks in ((PROMPT_TOKENS,), ONE_BY_ONE):
        assert worst_difference(logits_in_chunks(got, ids, chunks), want) < TOLERANCE
    # As exported, what the activations' 8 bits cost.
    assert worst_difference(logits_in_chunks(session_of(packed.graph), ids, ONE_BY_ONE), want) < 0.1


@pytest.mark.parametrize("name", ["llama-untied", "qwen2-tied"])
def test_int4_holds_exactly_the_values_of_a_package(name: str, tmp_path: Path) -> None:
    with package_of(CASES[name], tmp_path, "q4") as package:
        graph = write_onnx(package.path, tmp_path / "out", precision="int4").graph
        held = {
            entry.name: onnx.numpy_helper.to_array(entry) for entry in onnx.load(str(graph)).graph.initializer
        }
        matrices = {key: tensor for key, tensor in package.tensors.items() if len(tensor.shape) == 2}
        assert matrices
        for key, tensor in matrices.items():
            scales = held[f"{key}.scales"]
            codes = held[f"{key}.codes"].reshape(len(scales), -1)
            if tensor.scheme == "q4":
                nibbles = np.stack((codes & 15, codes >> 4), axis=-1)
                wide = nibbles.reshape(*scales.shape, 32).astype(np.float32) - 8
            else:
                assert tensor.scheme == "q8"
                wide = codes.reshape(*scales.shape, 32).astype(np.float32) - 128
            values = (wide * scales[..., None]).reshape(len(scales), -1)[:, : tensor.shape[1]]
            assert np.array_equal(values, unpack(tensor.data, tensor.scheme, tensor.layout, tensor.shape))


def test_a_gguf_gives_the_graph_of_its_folder(tmp_path: Path) -> None:
    case = CASES["llama-untied"]
    ids = prompt_ids(case, PROMPT_TOKENS)
    folder = write(case, tmp_path / "hf")
    paths = folder, write_gguf(folder, tmp_path / "m.gguf", types=lambda *_: "F32").path
    of_folder, of_gguf = (
        logits_in_chunks(
            session_of(write_onnx(path, tmp_path / path.stem / "out", precision="f32").graph),
            ids,
            (PROMPT_TOKENS,),
        )
        for path in paths
    )
    assert np.array_equal(of_folder, of_gguf)


@pytest.mark.parametrize(("precision", "side"), [("f32", "left"), ("f32", "right"), ("int4", "right")])
def test_a_padded_sequence_of_a_batch_equals_it_alone(precision: str, side: str, tmp_path: Path) -> None:
    case = CASES["qwen2-tied"]
    session = session_of(
        write_onnx(write(case, tmp_path / "hf"), tmp_path / "out", precision=precision).graph
    )
    ids = prompt_ids(case, 20)
    alone = [logits_in_chunks(session, part, (len(part),)) for part in (ids, ids[:12])]
    shift = 8 if side == "left" else 0
    batch, mask = np.zeros((2, 20), np.int64), np.zeros((2, 20), np.int64)
    for row, (first, part) in enumerate(((0, ids), (shift, ids[:12]))):
        batch[row, first : first + len(part)] = part
        mask[row, first : first + len(part)] = 1
    logits, _ = step(session, batch, mask, empty_past(session, 2))
    assert worst_difference(logits[0], alone[0]) < 1e-5
    assert worst_difference(logits[1, shift : shift + 12], alone[1]) < 1e-5


@pytest.mark.parametrize("precision", ["f16", "int4"])
def test_past_and_present_share_one_buffer(precision: str, tmp_path: Path) -> None:
    import onnxruntime

    case = CASES["qwen3-tied"]
    session = session_of(
        write_onnx(write(case, tmp_path / "hf"), tmp_path / "out", precision=precision).graph
    )
    ids = prompt_ids(case, 24)
    want = logits_in_chunks(session, ids, (9, 1, 14))
    buffers = {
        name: onnxruntime.OrtValue.ortvalue_from_numpy(
            np.zeros((1, case.kv_heads, 64, case.head_dim), array.dtype)
        )
        for name, array in empty_past(session).items()
    }
    done, rows = 0, []
    for size in (9, 1, 14):
        binding = session.io_binding()
        binding.bind_cpu_input("input_ids", np.array([ids[done : done + size]], np.int64))
        done += size
        binding.bind_cpu_input("attention_mask", np.ones((1, done), np.int64))
        for name, buffer in buffers.items():
            binding.bind_ortvalue_input(name, buffer)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), buffer)
        binding.bind_output("logits")
        session.run_with_iobinding(binding)
        rows.append(binding.get_outputs()[-1].numpy()[0])
    assert worst_difference(np.concatenate(rows), want) < 1e-5


def test_f32_needs_only_operators_of_the_standard(tmp_path: Path) -> None:
    for name in ("llama-biases", "qwen3-sliding-window"):
        folder = write(CASES[name], tmp_path / "hf" / name)
        graph = write_onnx(folder, tmp_path / name, precision="f32").graph
        model = onnx.load(str(graph))
        assert {node.domain for node in model.graph.node} == {""}
        assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 18)]
        onnx.checker.check_model(model, full_check=True)

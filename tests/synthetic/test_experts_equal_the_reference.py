"""Tiny models with experts give the logits and the choices that references give for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.package import Package
from edgeseek.runtime.backend import Slice
from tests.make_models import experts_gguf
from tests.make_models.tiny_experts import CASES, TinyExperts, expected, prompt_ids, tensors, write
from tests.synthetic.models import backend_of, converted, logits_of, package_folder

TOLERANCE = 1e-4
LENGTH = 24
#: A model that llama.cpp reads too: heads as wide as the hidden state.
PLAIN = TinyExperts("plain", 30, hidden_size=128, kv_heads=4)


def worst_difference(got: npt.NDArray[np.float32], want: npt.NDArray[np.float64]) -> float:
    """Largest difference in any row, relative to the row's largest value."""
    assert got.shape == want.shape
    return float((np.abs(got - want).max(axis=1) / np.abs(want).max(axis=1)).max())


def package_of(case: TinyExperts, folder: Path) -> Package:
    return package_folder(write(case, folder / "checkpoint"), folder / "package", "f32")


@pytest.mark.parametrize("name", CASES)
def test_logits_and_routing_equal_the_reference(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    ids = prompt_ids(case, LENGTH)
    want = expected(case, ids)
    # No choice is so close that rounding could turn it.
    assert want.margin > 0.01
    with package_of(case, tmp_path) as package:
        backend = backend_of(package, LENGTH)
        taps = [f"layers.{layer}.routing" for layer in want.routing]
        logits, found = backend.forward_with_taps([Slice(ids, 0, [1, 0], "all")], taps)
    assert worst_difference(logits, want.logits) < TOLERANCE
    for layer, weights in want.routing.items():
        got = found[f"layers.{layer}.routing"]
        assert ((got != 0) == (weights != 0)).all()
        assert worst_difference(got, weights) < TOLERANCE


@pytest.mark.parametrize("name", ["greedy", "group-limited", "corrected-groups"])
def test_a_gguf_gives_the_bytes_of_its_folder(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    source = experts_gguf.write_gguf(case, tmp_path / "model.gguf")
    with (
        package_of(case, tmp_path) as folder,
        converted(source, tmp_path / "package-of-gguf", b"{}", "f32") as file,
    ):
        assert file.config.moe == folder.config.moe
        assert list(file.tensors) == list(folder.tensors)
        for key, tensor in folder.tensors.items():
            assert bytes(file.tensors[key].data) == bytes(tensor.data), key


@pytest.mark.parametrize(
    "part",
    ["mlp.gate.weight", "shared_experts.down_proj.weight", "experts.5.up_proj.weight", "correction_bias"],
)
def test_a_part_that_is_left_out_shows(part: str, tmp_path: Path) -> None:
    case = CASES["corrected-groups"]
    ids = prompt_ids(case, LENGTH)
    zeroed = {name: np.zeros_like(value) for name, value in tensors(case).items() if name.endswith(part)}
    assert len(zeroed) == 2
    folder = write(case, tmp_path / "checkpoint", zeroed)
    with package_folder(folder, tmp_path / "package", "f32") as package:
        logits = logits_of(backend_of(package, LENGTH), ids)
    assert worst_difference(logits, expected(case, ids).logits) > 10 * TOLERANCE
    assert worst_difference(logits, expected(case, ids, zeroed).logits) < TOLERANCE


def test_logits_equal_those_of_llama_cpp(tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (extra 'bench')")
    ids = prompt_ids(PLAIN, LENGTH)
    path = experts_gguf.write_gguf(PLAIN, tmp_path / "model.gguf")
    theirs = llama_cpp.Llama(str(path), n_ctx=64, logits_all=True, n_threads=1, verbose=False)
    theirs.eval(ids)
    want = np.array(theirs.scores[:LENGTH], dtype=np.float64)
    theirs.close()
    with converted(path, tmp_path / "package", b"{}", "f32") as package:
        logits = logits_of(backend_of(package, LENGTH), ids)
    assert worst_difference(logits, want) < 1e-3
    assert worst_difference(logits, expected(PLAIN, ids).logits) < TOLERANCE

"""A tiny model gives the reference's logits from a GGUF too, and its package holds the folder's bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.make_models.gguf_file import has_gguf_form, write_gguf
from tests.make_models.reference import FIXTURES, PROMPT_TOKENS
from tests.make_models.tiny import CASES, prompt_ids
from tests.synthetic.models import backend_of, logits_of, package_of, package_of_gguf

STORABLE = [name for name, case in CASES.items() if has_gguf_form(case)]


@pytest.mark.parametrize("name", STORABLE)
def test_logits_from_a_gguf_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        expected = arrays["logits"]
    with package_of_gguf(case, tmp_path) as package:
        got = logits_of(backend_of(package, PROMPT_TOKENS), prompt_ids(case, PROMPT_TOKENS))
    worst = (np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)).max()
    assert worst < 1e-3


@pytest.mark.parametrize("name", [name for name in STORABLE if name != "qwen3-biases"])
def test_llama_cpp_gives_those_logits_from_the_same_file(name: str, tmp_path: Path) -> None:
    # It does not read biases of qwen3. Its cache is f32 here, so that only the order of sums differs.
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed (extra 'bench')")
    path = write_gguf(CASES[name], tmp_path / "model.gguf")
    model = llama_cpp.Llama(
        str(path), n_ctx=64, logits_all=True, verbose=False, n_threads=1, type_k=0, type_v=0, flash_attn=False
    )
    model.eval(prompt_ids(CASES[name], PROMPT_TOKENS))
    got = np.array(model.scores[:PROMPT_TOKENS])
    model.close()
    with np.load(FIXTURES / f"{name}.npz") as arrays:
        expected = arrays["logits"]
    worst = (np.abs(got - expected).max(axis=1) / np.abs(expected).max(axis=1)).max()
    assert worst < 1e-5


@pytest.mark.parametrize("name", ["llama-biases", "llama-one-kv-head", "qwen2-untied", "qwen3-biases"])
def test_both_kinds_of_checkpoint_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    with package_of(CASES[name], tmp_path) as folder, package_of_gguf(CASES[name], tmp_path) as file:
        assert list(file.tensors) == list(folder.tensors)
        for key, tensor in folder.tensors.items():
            assert bytes(file.tensors[key].data) == bytes(tensor.data), key

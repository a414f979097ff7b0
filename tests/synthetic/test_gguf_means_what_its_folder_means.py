"""A tiny model gives the reference's logits from a GGUF too, and its package holds the folder's bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.make_models.gguf_file import has_gguf_form
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


@pytest.mark.parametrize("name", ["llama-biases", "llama-one-kv-head", "qwen2-untied", "qwen3-biases"])
def test_both_kinds_of_checkpoint_give_the_same_bytes(name: str, tmp_path: Path) -> None:
    with package_of(CASES[name], tmp_path) as folder, package_of_gguf(CASES[name], tmp_path) as file:
        assert list(file.tensors) == list(folder.tensors)
        for key, tensor in folder.tensors.items():
            assert bytes(file.tensors[key].data) == bytes(tensor.data), key

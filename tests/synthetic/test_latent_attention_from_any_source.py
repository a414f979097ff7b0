"""Latent attention gives the same logits from a folder and from both kinds of GGUF, and every part shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.package import convert, open_package
from tests.make_models.latent_gguf import gguf_metadata, gguf_tensors
from tests.make_models.tiny import CASES, TinyModel, prompt_ids, tensors
from tests.synthetic.models import backend_of, logits_of, package_of
from tests.unit.architectures.fake_checkpoint import FakeCheckpoint, FakeTensor

TOKENS = 40


def gguf_logits(model: TinyModel, target: Path, *, split: bool) -> npt.NDArray[np.float32]:
    stored = {
        name: FakeTensor(
            name,
            "F32",
            value.shape,
            value.reshape(-1 if value.ndim > 1 else 1, value.shape[-1]).view(np.uint8),
        )
        for name, value in gguf_tensors(model, split=split).items()
    }
    checkpoint = FakeCheckpoint("gguf", gguf_metadata(model, split=split), stored)
    convert(
        checkpoint,
        target,
        name="tiny",
        tokenizer_json=b"{}",
        chat_template=None,
        generation_config={},
        scheme="f32",
    )
    with open_package(target) as package:
        return logits_of(backend_of(package, TOKENS), prompt_ids(model, TOKENS))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.latent is not None])
def test_a_folder_and_both_kinds_of_gguf_give_the_same_bits(name: str, tmp_path: Path) -> None:
    model = replace(CASES[name], attention_bias=False)
    with package_of(model, tmp_path) as package:
        want = logits_of(backend_of(package, TOKENS), prompt_ids(model, TOKENS))
    for split in (False, True):
        got = gguf_logits(model, tmp_path / f"gguf-{split}", split=split)
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("deepseek-v2-low-rank-queries", "q_a_proj.bias"),
        ("deepseek-v2-low-rank-queries", "kv_a_proj_with_mqa.bias"),
        ("deepseek-v2-low-rank-queries", "q_a_layernorm.weight"),
        ("deepseek-v2-plain-queries", "kv_a_layernorm.weight"),
        ("deepseek-v2-plain-queries", "kv_b_proj.weight"),
    ],
)
def test_a_part_that_is_changed_shows(name: str, part: str, tmp_path: Path) -> None:
    model = CASES[name]
    changed = {key: value * 0.5 for key, value in tensors(model).items() if key.endswith(part)}
    assert len(changed) == model.layers
    found = []
    for folder, values in ((tmp_path / "a", None), (tmp_path / "b", changed)):
        with package_of(model, folder, changed=values) as package:
            found.append(logits_of(backend_of(package, TOKENS), prompt_ids(model, TOKENS)))
    assert np.abs(found[0] - found[1]).max() > 0.01 * np.abs(found[0]).max()

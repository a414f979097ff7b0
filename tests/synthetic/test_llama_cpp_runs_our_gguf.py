"""llama.cpp answers from a GGUF of ours with the tokens that our own engine finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeseek.export.gguf import write_gguf
from tests.make_models.tiny import CASES, write
from tests.synthetic.models import backend_of, logits_of, package_folder

llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python: pip install 'edgeseek[bench]'")

PROMPT = [0, 72, 101, 108, 108, 111, 44, 32, 119, 111, 114, 108, 100]
#: Positions that are compared; beyond 16, so that a scaled RoPE differs from a plain one.
LENGTH = 40
NAMES = [
    name
    for name in CASES
    # What cannot be written, and longrope, whose factors llama.cpp picks by its own context.
    if not any(part in name for part in ("dynamic", "window", "longrope", "qwen3-biases", "deepseek"))
]


@pytest.mark.parametrize("name", NAMES)
def test_the_logits_of_a_float_file_agree(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    write_gguf(folder, tmp_path / "model.gguf", types=lambda *_: "F32")
    model = llama_cpp.Llama(
        str(tmp_path / "model.gguf"), n_ctx=64, logits_all=True, verbose=False, n_threads=2
    )
    ids = (PROMPT * 4)[:LENGTH]
    model.eval(ids)
    theirs = np.asarray(model.scores[:LENGTH], np.float32)
    with package_folder(folder, tmp_path / "package", "f32") as package:
        ours = logits_of(backend_of(package, 64), ids)
    scale = np.abs(ours).max()
    np.testing.assert_allclose(theirs, ours, atol=5e-3 * scale)
    assert (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean() > 0.9


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_it_loads_rounded_files_and_tokenizes_as_we_do(kind: str, tmp_path: Path) -> None:
    folder = write(CASES["llama-tied"], tmp_path / "folder")
    write_gguf(folder, tmp_path / "model.gguf", types=lambda *_: kind)  # type: ignore[arg-type]
    model = llama_cpp.Llama(str(tmp_path / "model.gguf"), n_ctx=64, verbose=False, n_threads=2)
    with package_folder(folder, tmp_path / "package", "f32") as package:
        from edgeseek.tokenizer import Tokenizer

        tokenizer = Tokenizer.from_json(package.tokenizer_json)
    for text in ("Hello world, it's 2024!", "def f(x):\n    return x\n", "你好 grüße"):
        assert model.tokenize(text.encode(), add_bos=False, special=False) == tokenizer.encode(text)
    assert len(list(zip(range(8), model.generate(PROMPT, temp=0.0), strict=False))) == 8

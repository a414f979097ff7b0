"""onnxruntime-genai, a client that is not ours, opens an exported folder and draws the same greedy tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'edgeseek[onnx]'")
genai = pytest.importorskip("onnxruntime_genai", reason="needs pip install onnxruntime-genai")

from edgeseek.export.onnx import write_onnx  # noqa: E402
from edgeseek.quantize.schemes import Scheme  # noqa: E402
from edgeseek.runtime.backend import Slice  # noqa: E402
from edgeseek.tokenizer import Tokenizer  # noqa: E402
from tests.make_models.tiny import CASES, CHAT_TEMPLATE, prompt_ids  # noqa: E402
from tests.synthetic.models import backend_of, package_of  # noqa: E402

PROMPT, ANSWER = 30, 40
#: For each precision, what the native backend runs.
SCHEMES: dict[str, Scheme] = {"f32": "f32", "f16": "f32", "int4": "q4"}


@pytest.mark.parametrize("precision", SCHEMES)
@pytest.mark.parametrize("name", ["llama-tied", "qwen2-untied", "qwen3-tied"])
def test_greedy_tokens_are_those_of_the_core(name: str, precision: str, tmp_path: Path) -> None:
    case = CASES[name]
    with package_of(case, tmp_path, SCHEMES[precision]) as package:
        write_onnx(package.path, tmp_path / "out", precision=precision)
        ids = prompt_ids(case, PROMPT)
        backend = backend_of(package, PROMPT + ANSWER)
        new, wanted = ids, list[int]()
        while len(wanted) < ANSWER and 1 not in wanted:
            past = PROMPT + len(wanted) - 1 if wanted else 0
            wanted.append(int(backend.forward([Slice(new, past, [0, 1, 2])])[0].argmax()))
            new = wanted[-1:]
    model = genai.Model(str(tmp_path / "out"))
    options = genai.GeneratorParams(model)
    options.set_search_options(max_length=PROMPT + ANSWER, do_sample=False)
    generator = genai.Generator(model, options)
    generator.append_tokens(np.array(ids, np.int32))
    drawn = []
    while not generator.is_done():
        generator.generate_next_token()
        drawn.append(int(generator.get_next_tokens()[0]))
    # What ends the answer may be given or not.
    assert [token for token in drawn if token != 1] == [token for token in wanted if token != 1]
    assert len(drawn) > 1


def test_the_tokenizer_and_the_template_are_read(tmp_path: Path) -> None:
    with package_of(CASES["llama-tied"], tmp_path) as package:
        write_onnx(package.path, tmp_path / "out", precision="f32")
    assert CHAT_TEMPLATE
    tokenizer = genai.Tokenizer(genai.Model(str(tmp_path / "out")))
    ours = Tokenizer.from_json(
        (tmp_path / "out" / "tokenizer.json").read_bytes(), bos_token_id=0, eos_token_ids=(1,)
    )
    for text in ("Hello <|user|>the model", "naïve  tabs\tand\nlines 你好", ""):
        assert tokenizer.encode(text).tolist() == list(ours.encode_prompt(text))

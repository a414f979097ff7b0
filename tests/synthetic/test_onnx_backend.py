"""The engine on exported graphs answers as on the core: alone, together, in turns, short of memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="needs onnx: pip install 'edgeseek[onnx]'")
pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'edgeseek[onnx]'")

from edgeseek.engine import Engine, SamplingParams
from edgeseek.errors import PackageFormatError, RuntimeFailure, UsageError
from edgeseek.export.onnx import write_onnx
from edgeseek.llm import LLM
from edgeseek.runtime.backend import Slice
from edgeseek.runtime.onnx import OnnxBackend, choose_provider
from edgeseek.runtime.onnx_graph import open_exported
from edgeseek.settings import Settings
from edgeseek.tokenizer import Tokenizer
from tests.make_models.tiny import CASES, prompt_ids, write

PARAMS = SamplingParams(max_tokens=40, ignore_eos=True)
PROMPTS = ("return the model", "def token", "a", "The self is " * 9)
PRECISIONS = ("f32", "f16", "int4")


@dataclass(frozen=True)
class Exported:
    checkpoint: Path
    folders: dict[str, Path]


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    root = tmp_path_factory.mktemp("qwen")
    checkpoint = write(CASES["qwen2-tied"], root / "hf")
    for precision in PRECISIONS:
        write_onnx(checkpoint, root / precision, precision=precision)
    return Exported(checkpoint, {precision: root / precision for precision in PRECISIONS})


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(cache_dir=tmp_path_factory.mktemp("home"), threads=2)


@pytest.fixture(scope="module")
def native(settings: Settings, qwen: Exported) -> Iterator[LLM]:
    with LLM.load(qwen.checkpoint, scheme="f32", settings=settings) as llm:
        yield llm


@pytest.fixture(scope="module")
def exported(settings: Settings, qwen: Exported) -> Iterator[LLM]:
    with LLM.load(qwen.folders["f32"], settings=settings) as llm:
        yield llm


def backend_of(folder: Path, blocks: int = 12) -> OnnxBackend:
    return OnnxBackend(open_exported(folder / "model.onnx"), blocks=blocks, threads=1)


@pytest.mark.parametrize("name", ["llama-untied", "qwen3-tied"])
def test_greedy_text_equals_the_core(name: str, settings: Settings, tmp_path: Path) -> None:
    checkpoint = write(CASES[name], tmp_path / name)
    graph = write_onnx(checkpoint, tmp_path / "out", precision="f32").graph
    with (
        LLM.load(checkpoint, scheme="f32", settings=settings) as core,
        LLM.load(graph, settings=settings, backend="onnx", provider="cpu") as onnx,
    ):
        for prompt in PROMPTS:
            assert onnx.complete(prompt, PARAMS).token_ids == core.complete(prompt, PARAMS).token_ids


def test_many_at_once_answer_as_each_alone_on_the_core(native: LLM, exported: LLM) -> None:
    running = [exported.generate(prompt, PARAMS) for prompt in PROMPTS]
    got = [generation.join().token_ids for generation in running]
    assert got == [native.complete(prompt, PARAMS).token_ids for prompt in PROMPTS]


def test_the_next_turn_computes_only_what_is_new(native: LLM, exported: LLM) -> None:
    messages = [{"role": "user", "content": "return the model"}]
    cached = []
    for question in ("def", "import"):
        answers = [llm.chat(messages, PARAMS).join() for llm in (native, exported)]
        assert answers[0].text == answers[1].text
        cached.append(answers[1].timings.cached_tokens)
        messages += [
            {"role": "assistant", "content": answers[1].text},
            {"role": "user", "content": question},
        ]
    assert cached[1] > 10


def test_sampling_draws_as_the_core_does(native: LLM, exported: LLM) -> None:
    params = SamplingParams(max_tokens=20, temperature=0.8, top_p=0.9, seed=7, ignore_eos=True)
    assert exported.complete("def", params).token_ids == native.complete("def", params).token_ids


@pytest.mark.parametrize("precision", PRECISIONS)
def test_sequences_that_fight_for_blocks_end_as_each_alone(precision: str, qwen: Exported) -> None:
    """Four sequences of up to 99 positions in 8 blocks: some are preempted and computed again."""
    backend = backend_of(qwen.folders[precision], blocks=8)
    vocabulary = (qwen.folders[precision] / "tokenizer.json").read_bytes()
    tokenizer = Tokenizer.from_json(vocabulary, bos_token_id=0, eos_token_ids=(1,))
    prompts = [prompt_ids(CASES["qwen2-tied"], n) for n in (59, 17, 40, 58)]
    with Engine(backend, tokenizer, slots=4, check_invariants=True, speculate=False) as engine:
        alone = [engine.submit(prompt, PARAMS).join().token_ids for prompt in prompts]
        together = [engine.submit(prompt, PARAMS) for prompt in prompts]
        assert [generation.join().token_ids for generation in together] == alone
    # 8 blocks are 256 positions; each sequence's room is rounded up to 256.
    assert backend.cached_positions <= 256 + 4 * 256
    backend.close()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_logits_do_not_depend_on_the_way(precision: str, qwen: Exported) -> None:
    backend = backend_of(qwen.folders[precision])
    ids = prompt_ids(CASES["qwen2-tied"], 44)
    table, other = [5, 2, 7], [3, 1, 0]
    whole = backend.forward([Slice(ids, 0, table, "all")])
    near = {"rtol": 0.0, "atol": 5e-4 * np.abs(whole).max()} if precision != "f16" else {"atol": 0.03}
    # A prompt in chunks, of which none and the last logits are wanted, beside another sequence.
    mixed = backend.forward([Slice(ids[:20], 0, other, "none"), Slice(ids[40:], 40, table, "last")])
    assert mixed.shape == (1, whole.shape[1])
    np.testing.assert_allclose(mixed[0], whole[-1], **near)
    rest = backend.forward([Slice(ids[20:], 20, other, "all")])
    np.testing.assert_allclose(rest, whole[20:], **near)
    # Cut back to 7 tokens and gone on from there.
    again = backend.forward([Slice(ids[7:], 7, other, "all")])
    np.testing.assert_allclose(again, whole[7:], **near)
    backend.close()


def test_a_step_that_cannot_be_run_is_refused(qwen: Exported) -> None:
    backend = backend_of(qwen.folders["int4"])
    with pytest.raises(RuntimeFailure, match="goes on from token 5 of a sequence that is not known"):
        backend.forward([Slice([1], 5, [0])])
    backend.forward([Slice([1, 2, 3], 0, [0])])
    with pytest.raises(RuntimeFailure, match="goes on from token 5, and 3 are in the cache"):
        backend.forward([Slice([1], 5, [0])])
    with pytest.raises(RuntimeFailure, match="outside of 320"):
        backend.forward([Slice([320], 3, [0])])
    with pytest.raises(RuntimeFailure, match="the graph takes 512 tokens"):
        backend.forward([Slice([1] * 600, 0, list(range(19)))])
    backend.close()


def test_an_unknown_provider_names_those_available(qwen: Exported, settings: Settings) -> None:
    with pytest.raises(UsageError, match=r"'npu' is not installed; available are .*CPUExecutionProvider"):
        LLM.load(qwen.folders["f32"], provider="npu", settings=settings)
    names = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    assert [choose_provider(name, names) for name in ("cuda", "CUDAExecutionProvider", None)] == [
        *names[:1] * 2,
        names[1],
    ]


def test_the_wrong_backend_is_refused(qwen: Exported, settings: Settings) -> None:
    with pytest.raises(UsageError, match="is an ONNX graph, which only the backend 'onnx' runs"):
        LLM.load(qwen.folders["f32"], backend="native", settings=settings)
    with pytest.raises(UsageError, match="is no ONNX graph; make one with: edgeseek export"):
        LLM.load(qwen.checkpoint, backend="onnx", settings=settings)
    with pytest.raises(UsageError, match="--provider cuda is ONNX Runtime's"):
        LLM.load(qwen.checkpoint, provider="cuda", settings=settings)


def test_a_damaged_folder_is_named(qwen: Exported, settings: Settings, tmp_path: Path) -> None:
    import onnx

    def copy(*names: str) -> Path:
        for name in names:
            (tmp_path / name).write_bytes((qwen.folders["int4"] / name).read_bytes())
        return tmp_path

    with pytest.raises(PackageFormatError, match=r"model.onnx.data is missing; export the model again"):
        LLM.load(copy("model.onnx"), settings=settings)
    data = copy("model.onnx.data") / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-100])
    with pytest.raises(PackageFormatError, match=r"has \d+ bytes of \d+"):
        LLM.load(tmp_path, settings=settings)
    copy("model.onnx.data")
    with pytest.raises(PackageFormatError, match=r"has no file tokenizer.json|no tokenizer.json"):
        LLM.load(tmp_path, settings=settings)
    model = onnx.load(str(tmp_path / "model.onnx"), load_external_data=False)
    del model.metadata_props[:]
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(PackageFormatError, match="was not written by edgeseek"):
        LLM.load(tmp_path, settings=settings)
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 50)
    with pytest.raises(PackageFormatError, match="is no ONNX graph"):
        LLM.load(tmp_path, settings=settings)

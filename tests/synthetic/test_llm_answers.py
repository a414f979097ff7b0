"""The facade on a tiny model and the native core: load, generate, chat, refuse."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgeseek import _core
from edgeseek.engine import SamplingParams
from edgeseek.errors import (
    ChatTemplateError,
    DoesNotFitError,
    PackageFormatError,
    PromptTooLongError,
    UnknownModelError,
    UsageError,
)
from edgeseek.llm import LLM
from edgeseek.runtime.native import NativeBackend
from edgeseek.settings import ISA_NAMES, Settings
from tests.make_models.tiny import CASES, write

PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
QUESTION = [{"role": "user", "content": "return the model"}]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return Settings(cache_dir=tmp_path_factory.mktemp("home"), threads=2)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(CASES["llama-tied"], tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def llm(settings: Settings, checkpoint: Path) -> Iterator[LLM]:
    with LLM.load(checkpoint, settings=settings) as llm:
        yield llm


def test_loading_says_what_it_did_and_imports_once(settings: Settings, checkpoint: Path) -> None:
    settings = settings.with_changes(cache_dir=settings.cache_dir / "fresh")
    lines: list[str] = []
    with LLM.load(checkpoint, settings=settings, context=64, report=lines.append) as llm:
        assert llm.context == 64
        name = llm.name
    assert [line.split()[0] for line in lines] == ["imported", f"{name}:"]
    lines.clear()
    with LLM.load(name, settings=settings, report=lines.append) as llm:
        assert llm.context == 512
    assert len(lines) == 1


def test_a_package_loads_by_its_path(llm: LLM, settings: Settings, checkpoint: Path) -> None:
    (folder,) = (path.parent for path in settings.packages_dir.glob("*/edgeseek.json"))
    with LLM.load(folder, settings=settings) as again:
        assert again.complete("the model", PARAMS).token_ids == llm.complete("the model", PARAMS).token_ids


def test_a_text_and_its_ids_continue_alike_and_the_text_is_the_ids_text(llm: LLM) -> None:
    from_text = llm.complete("the model is", PARAMS)
    from_ids = llm.complete(llm.tokenizer.encode_prompt("the model is"), PARAMS)
    assert from_text.token_ids == from_ids.token_ids
    shown = [i for i in from_text.token_ids if i != 1]
    assert from_text.text == llm.tokenizer.decode(shown, continues=True)
    assert len(from_text.token_ids) == 24


def test_eight_together_equal_each_alone_on_the_core(llm: LLM) -> None:
    prompts = [f"{'class model ' * i}def {i}" for i in range(8)]
    sampled = PARAMS.with_changes(temperature=1.0, seed=5, top_p=0.9)
    together = [llm.generate(prompt, sampled) for prompt in prompts]
    got = [generation.join().token_ids for generation in together]
    assert got == [llm.complete(prompt, sampled).token_ids for prompt in prompts]
    assert len(set(got)) == 8


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("threads", [1, 2 * (os.cpu_count() or 1) + 1])
def test_every_instruction_set_and_number_of_threads_that_is_forced_gives_the_same_answer(
    llm: LLM, settings: Settings, checkpoint: Path, isa: str, threads: int
) -> None:
    environ = {
        "EDGESEEK_HOME": str(settings.cache_dir),
        "EDGESEEK_ISA": isa,
        "EDGESEEK_THREADS": str(threads),
    }
    detailed = PARAMS.with_changes(logprobs=3)
    with LLM.load(checkpoint, settings=Settings.from_environment(environ)) as forced:
        assert isinstance(forced.backend, NativeBackend)
        assert (forced.backend.isa, forced.backend.threads) == (isa, threads)
        got, wanted = (each.complete("the model is", detailed) for each in (forced, llm))
    assert (got.token_ids, got.logprobs) == (wanted.token_ids, wanted.logprobs)


def test_an_instruction_set_that_the_machine_lacks_is_refused_with_those_it_has(
    settings: Settings, checkpoint: Path
) -> None:
    missing = next(name for name in ISA_NAMES if name not in _core.supported_isas())
    with pytest.raises(UsageError, match=f"instruction set '{missing}' is not available .* have .*scalar"):
        LLM.load(checkpoint, settings=settings.with_changes(isa=missing))


def test_the_next_turn_reuses_the_conversation_with_identical_logprobs(
    llm: LLM, settings: Settings, checkpoint: Path
) -> None:
    answer = llm.chat(QUESTION, PARAMS).join()
    ids = [*llm.tokenizer.encode_prompt(rendered(llm)), *answer.token_ids, 1, 2, 40, 41, 3]
    detailed = PARAMS.with_changes(logprobs=3)
    warm = llm.complete(ids, detailed)
    assert warm.timings.cached_tokens == len(ids) - 6
    with LLM.load(checkpoint, settings=settings) as cold:
        fresh = cold.complete(ids, detailed)
    assert fresh.timings.cached_tokens == 0
    assert (warm.token_ids, warm.logprobs) == (fresh.token_ids, fresh.logprobs)


def rendered(llm: LLM) -> str:
    assert llm.chat_template is not None
    return llm.chat_template.render(QUESTION)


def test_a_chat_prompt_is_the_template_with_one_bos(llm: LLM) -> None:
    generation = llm.chat(QUESTION, PARAMS)
    ids = llm.tokenizer.encode_prompt(rendered(llm))
    assert generation.prompt_tokens == len(ids)
    assert ids.count(0) == 1
    assert generation.join().token_ids == llm.complete(ids, PARAMS).token_ids


def test_unless_streamed_there_is_one_chunk(llm: LLM) -> None:
    (chunk,) = llm.chat(QUESTION, PARAMS, stream=False)
    assert len(chunk.token_ids) == 24
    assert chunk.timings is not None


def test_defaults_are_the_models_own(tmp_path: Path, settings: Settings) -> None:
    folder = write(CASES["llama-tied"], tmp_path / "sampling")
    (folder / "generation_config.json").write_text('{"do_sample": true, "temperature": 0.5, "top_p": 0.9}')
    (folder / "tokenizer_config.json").write_text('{"eos_token": "<|eos|>"}')
    with LLM.load(folder, settings=settings) as llm:
        assert llm.default_params == SamplingParams(temperature=0.5, top_p=0.9)
        with pytest.raises(ChatTemplateError, match="no chat template"):
            llm.chat(QUESTION)


def test_what_cannot_be_answered_is_refused_at_once(llm: LLM) -> None:
    with pytest.raises(PromptTooLongError) as caught:
        llm.generate([5] * 600)
    assert (caught.value.prompt_tokens, caught.value.context) == (600, 512)
    with pytest.raises(UsageError, match="conversation is empty"):
        llm.chat([])


def test_what_cannot_be_loaded_is_refused(settings: Settings, checkpoint: Path) -> None:
    with pytest.raises(UnknownModelError):
        LLM.load("no-such-model", settings=settings)
    with pytest.raises(DoesNotFitError) as caught:
        LLM.load(checkpoint, settings=settings, budget=1 << 20)
    assert caught.value.needed > 1 << 20
    with pytest.raises(UsageError):
        LLM.load(checkpoint, settings=settings, scheme="q3")
    with pytest.raises(UsageError, match="0 threads were asked for; give 1 to 1024"):
        LLM.load(checkpoint, settings=settings, threads=0)


def engine_threads() -> int:
    return sum(thread.name == "edgeseek-engine" for thread in threading.enumerate())


def test_a_model_that_is_dropped_closes_itself_after_its_last_generation(
    settings: Settings, checkpoint: Path
) -> None:
    before = engine_threads()
    generation = LLM.load(checkpoint, settings=settings).generate("the model", PARAMS)
    assert engine_threads() == before + 1
    assert len(generation.join().token_ids) == 24
    del generation
    assert engine_threads() == before


@pytest.mark.parametrize("key", ["eos_token_id", "bos_token_id"])
@pytest.mark.parametrize("value", ['"two"', "-1", "[1, null]", "1.5", "{}"])
def test_token_ids_that_are_none_are_named(
    settings: Settings, tmp_path: Path, llm: LLM, key: str, value: str
) -> None:
    (source,) = (path.parent for path in settings.packages_dir.glob("tiny-*/edgeseek.json"))
    folder = shutil.copytree(source, tmp_path / "package")
    (folder / "generation_config.json").write_text(f'{{"{key}": {value}}}')
    with pytest.raises(PackageFormatError, match=f"{key} in .*generation_config.json is "):
        LLM.load(folder, settings=settings)


def test_defaults_out_of_range_are_named(settings: Settings, tmp_path: Path, llm: LLM) -> None:
    (source,) = (path.parent for path in settings.packages_dir.glob("tiny-*/edgeseek.json"))
    folder = shutil.copytree(source, tmp_path / "package")
    (folder / "generation_config.json").write_text('{"temperature": "warm"}')
    with pytest.raises(PackageFormatError, match="generation_config.json cannot be followed: temperature is"):
        LLM.load(folder, settings=settings)


def test_a_malformed_chat_template_hinders_chat_only(settings: Settings, tmp_path: Path, llm: LLM) -> None:
    (source,) = (path.parent for path in settings.packages_dir.glob("tiny-*/edgeseek.json"))
    folder = shutil.copytree(source, tmp_path / "package")
    (folder / "chat_template.jinja").write_text("{% for %}")
    with LLM.load(folder, settings=settings) as broken:
        assert broken.complete("the model", PARAMS).token_ids == llm.complete("the model", PARAMS).token_ids
        with pytest.raises(ChatTemplateError, match="malformed at line 1"):
            broken.chat(QUESTION)


def test_what_only_an_import_needs_is_not_imported_for_a_package(settings: Settings, llm: LLM) -> None:
    (folder,) = (path.parent for path in settings.packages_dir.glob("tiny-*/edgeseek.json"))
    script = (
        "import sys\nfrom edgeseek import load\n"
        f"with load({str(folder)!r}) as llm:\n    llm.complete('the model')\n"
        "rooms = tuple(f'edgeseek.{room}.' for room in ('checkpoints', 'package', 'store', 'tokenizer'))\n"
        "others = ('huggingface_hub', 'jinja2', 'rich', 'typer', 'zipfile')\n"
        "print([name for name in sys.modules if name in others or name.startswith(rooms)])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(found.stdout)) == {
        "edgeseek.checkpoints.base",
        "edgeseek.checkpoints.catalogue",
        "edgeseek.package.container",
        "edgeseek.package.manifest",
        "edgeseek.package.reader",
        "edgeseek.tokenizer.pieces",
        "edgeseek.tokenizer.stream",
        "edgeseek.tokenizer.tokenizer",
    }

"""The facade: a name or path in, typed chunks out.

The only place that joins store, planner, tokenizer, runtime and engine. Knows nothing of HTTP or the
terminal.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from edgeseek.architectures.spec import ModelConfig
from edgeseek.checkpoints.catalogue import local_path
from edgeseek.engine import Chunk, Completion, Engine, FinishReason, Generation, SamplingParams, Timings
from edgeseek.engine.engine import SLOTS, STEP_TOKENS
from edgeseek.engine.speculative import MAX_ROWS
from edgeseek.errors import ChatTemplateError, PackageFormatError, UsageError
from edgeseek.memory.cpus import usable_cpus
from edgeseek.memory.limits import memory_available
from edgeseek.memory.planner import KvType, MemoryPlan, plan
from edgeseek.package import Package, is_package, open_package
from edgeseek.runtime.backend import Backend
from edgeseek.runtime.preload import Preload, check_preload
from edgeseek.settings import MAX_THREADS, Settings
from edgeseek.tokenizer import Tokenizer

if TYPE_CHECKING:
    from edgeseek.engine.grammar import GrammarCompiler
    from edgeseek.memory.guard import GuardEvent, MemoryGuard
    from edgeseek.store import Progress
    from edgeseek.tokenizer import ChatTemplate

Speculation = Literal["lookup", "off"]
BackendName = Literal["native", "onnx"]
#: A step's buffers grow with it; more brings no speed.
MAX_STEP_TOKENS = 4096

__all__ = ["LLM", "Chunk", "Completion", "FinishReason", "Generation", "SamplingParams", "Timings"]


class LLM:
    """A loaded model. Thread-safe; many generations may run at once. Close it, or use `with`; one that is
    dropped closes itself once the generations it gave are dropped too.

    `generate` and `chat` return an iterator of chunks that starts at once; dropping it, or its `cancel`,
    ends the generation. Without `params` they use `default_params`, what the model's
    generation_config.json asks for (greedy where it asks for nothing); given ones replace it whole, so
    start from `llm.default_params.with_changes(...)` to change one.
    """

    def __init__(
        self,
        *,
        name: str,
        backend: Backend,
        tokenizer: Tokenizer,
        chat_template: str | None,
        generation_config: Mapping[str, Any],
        plan: MemoryPlan,
        package: Package | None = None,
        speculation: Speculation = "lookup",
        step_tokens: int = STEP_TOKENS,
    ) -> None:
        """Join parts that are loaded already; `load` is the usual way. `chat_template` is its source."""
        self.name = name
        self.tokenizer = tokenizer
        self._chat_template = chat_template
        self.default_params = _default_params(generation_config)
        self.plan = plan
        self._backend = backend
        self._package_path = None if package is None else package.path
        #: Names the weights: the package's digest; for an exported graph only its name.
        self.digest = name if package is None else package.digest
        self.engine = Engine(
            backend,
            tokenizer,
            context=plan.context,
            slots=max(plan.slots, SLOTS),
            step_tokens=step_tokens,
            speculate=speculation == "lookup",
            eos_token_ids=(*backend.config.eos_token_ids, *_token_ids(generation_config, "eos_token_id")),
        )
        self._grammars: GrammarCompiler | None = None
        self._grammars_lock = threading.Lock()
        self._guards: list[MemoryGuard] = []
        self._finalize = weakref.finalize(self, _release, self._guards, self.engine, backend, package)

    @classmethod
    def load(
        cls,
        model: str | Path = "smollm2-135m",
        *,
        scheme: str | None = None,
        context: int | None = None,
        slots: int = 1,
        threads: int | None = None,
        budget: int | None = None,
        speculation: Speculation = "lookup",
        preload: Preload = "populate",
        kv: KvType = "f16",
        backend: BackendName | None = None,
        provider: str | None = None,
        step_tokens: int = STEP_TOKENS,
        keep_source: bool = False,
        settings: Settings | None = None,
        progress: Progress | None = None,
        report: Callable[[str], None] | None = None,
    ) -> LLM:
        """Load a package, a checkpoint folder, a GGUF file, an exported graph, or a pulled or catalogue name.

        What is not a package yet is downloaded and converted once, see `Store.pull` (`scheme`,
        `keep_source`, `progress`). `context` is in tokens, prompt and answer together (default: the least
        of the model's, 8192 and what fits). `slots` is how many full contexts the KV pool holds; more
        and shorter generations share it. `threads` defaults to what the machine's limits allow.
        `budget` caps the bytes this model may take. `speculation` "lookup" guesses tokens from the text so
        far and verifies several in one step; it changes speed, never an answer. `preload` says how the
        weights come into memory: "none", "populate" (in the background), "lock" or "copy", see
        `runtime.preload`. `kv` "int8" stores keys and values in half the memory of "f16". `step_tokens`
        bounds the tokens of one step: a running answer waits for a prompt's part no longer than that
        takes. `report` gets one line for each thing done.

        An .onnx file that `edgeseek export` wrote, or its folder, is run by ONNX Runtime; `backend` "native"
        or "onnx" refuses any other kind of model. `provider` names ONNX Runtime's execution provider, the
        CPU's by default. `scheme`, `preload` and `kv` then say nothing, and nothing is speculated, since
        there several tokens in a step need not give the bits of one at a time.

        Raises UnknownModelError, UsageError, CheckpointError, PackageError, DownloadError, StorageError,
        DoesNotFitError (with the numbers), TokenizerError or RuntimeFailure.
        """
        settings = settings or Settings.from_environment()
        say = report or _say_nothing
        if speculation not in get_args(Speculation):
            raise UsageError(f"speculation {speculation!r} is unknown; give {_one_of(Speculation)}")
        check_preload(preload)
        if kv not in get_args(KvType):
            raise UsageError(f"a KV cache of type {kv!r} is unknown; give {_one_of(KvType)}")
        if not max(slots, SLOTS) <= step_tokens <= MAX_STEP_TOKENS:
            least = max(slots, SLOTS)
            raise UsageError(f"a step of {step_tokens} tokens; give {least} (the slots) to {MAX_STEP_TOKENS}")
        if backend is not None and backend not in get_args(BackendName):
            raise UsageError(f"backend {backend!r} is unknown; give {_one_of(BackendName)}")
        exported = _exported_graph(str(model), backend)
        if exported is not None:
            return cls._from_exported(
                exported, context, slots, threads, budget, provider, step_tokens, settings, say
            )
        if provider is not None:
            raise UsageError(f"--provider {provider} is ONNX Runtime's, and {model} is no exported graph")
        path = _package_path(str(model), scheme, keep_source, settings, progress, say)
        package = open_package(path)
        try:
            return cls._from_package(
                package, context, slots, threads, budget, speculation, preload, kv, step_tokens, settings, say
            )
        except BaseException:
            package.close()
            raise

    @classmethod
    def _from_package(
        cls,
        package: Package,
        context: int | None,
        slots: int,
        threads: int | None,
        budget: int | None,
        speculation: Speculation,
        preload: Preload,
        kv: KvType,
        step_tokens: int,
        settings: Settings,
        say: Callable[[str], None],
    ) -> LLM:
        from edgeseek.runtime.native import NativeBackend

        usable = usable_cpus(settings)
        threads = _threads(usable.threads, threads)
        memory = plan(
            package.config,
            package.weight_bytes,
            # A copy is made of everything, and nothing of it can be dropped.
            expert_bytes=0 if preload == "copy" else package.expert_bytes,
            limits=memory_available(settings),
            context=context,
            slots=slots,
            threads=threads,
            step_tokens=step_tokens,
            logit_rows=max(slots, SLOTS, MAX_ROWS if speculation == "lookup" else 0),
            budget=budget,
            kv=kv,
            copied=preload == "copy",
        )
        say(f"{package.name}: {memory.summary}")
        generation_config = package.generation_config
        # First: its thread reads the weights while the vocabulary loads, which holds the GIL for as long as
        # all the rest takes.
        backend = NativeBackend(
            package,
            blocks=memory.blocks,
            threads=threads,
            isa=settings.isa,
            max_step_tokens=step_tokens,
            preload=preload,
            kv=kv,
            # More threads than good processors: then any will do.
            cpus=usable.cpus if threads <= len(usable.cpus) else (),
            context=memory.context,
        )
        try:
            tokenizer = _tokenizer(package.tokenizer_json, generation_config, package.config)
            return cls(
                name=package.name,
                backend=backend,
                tokenizer=tokenizer,
                chat_template=package.chat_template,
                generation_config=generation_config,
                plan=memory,
                package=package,
                speculation=speculation,
                step_tokens=step_tokens,
            )
        except BaseException:
            backend.close()
            raise

    @classmethod
    def _from_exported(
        cls,
        path: Path,
        context: int | None,
        slots: int,
        threads: int | None,
        budget: int | None,
        provider: str | None,
        step_tokens: int,
        settings: Settings,
        say: Callable[[str], None],
    ) -> LLM:
        from edgeseek.runtime.onnx import OnnxBackend
        from edgeseek.runtime.onnx_graph import open_exported

        threads = _threads(usable_cpus(settings).threads, threads)
        graph = open_exported(path)
        memory = plan(
            graph.config,
            graph.weight_bytes,
            limits=memory_available(settings),
            context=context,
            slots=slots,
            threads=threads,
            step_tokens=step_tokens,
            logit_rows=max(slots, SLOTS),
            budget=budget,
            kv_token_bytes=graph.kv_bytes_per_token,
        )
        say(f"{graph.name}: {memory.summary}")
        backend = OnnxBackend(graph, blocks=memory.blocks, threads=threads, provider=provider)
        say(f"{graph.name}: run by {backend.provider}")
        try:
            return cls(
                name=graph.name,
                backend=backend,
                tokenizer=_tokenizer(graph.tokenizer_json, graph.generation_config, graph.config),
                chat_template=graph.chat_template,
                generation_config=graph.generation_config,
                plan=memory,
                speculation="off",
                step_tokens=step_tokens,
            )
        except BaseException:
            backend.close()
            raise

    @property
    def config(self) -> ModelConfig:
        """The model's hyper-parameters."""
        return self._backend.config

    @cached_property
    def chat_template(self) -> ChatTemplate | None:
        """What turns messages into a prompt, compiled when it is first asked for; None for a base model.

        Raises ChatTemplateError where it is malformed.
        """
        if self._chat_template is None:
            return None
        from edgeseek.tokenizer import ChatTemplate

        bos, eos = self.tokenizer.bos_token, self.tokenizer.eos_token
        return ChatTemplate(self._chat_template, bos_token=bos, eos_token=eos)

    @property
    def grammars(self) -> GrammarCompiler:
        """What holds answers to JSON schemas, made when it is first asked for; needs the extra `server`.

        Raises MissingExtraError.
        """
        with self._grammars_lock:
            if self._grammars is None:
                from edgeseek.engine.grammar import GrammarCompiler

                self._grammars = GrammarCompiler(self.tokenizer, sorted(self.engine.eos_token_ids))
            return self._grammars

    @property
    def context(self) -> int:
        """Tokens of prompt and answer together, at most."""
        return self.plan.context

    @property
    def package_path(self) -> Path | None:
        """The package folder it was loaded from."""
        return self._package_path

    @property
    def backend(self) -> Backend:
        """What executes the model; use it through `engine.borrow` only."""
        return self._backend

    def generate(
        self, prompt: str | Items[int], params: SamplingParams | None = None, *, stream: bool = True
    ) -> Generation:
        """Continue a text or token ids. A text gets the model's BOS if it wants one; ids are taken as given.

        With `stream` false the iterator yields one chunk with everything. Raises PromptTooLongError or
        UsageError before anything runs; a failure while running is raised by the iterator.
        """
        ids = self.tokenizer.encode_prompt(prompt) if isinstance(prompt, str) else prompt
        return self.engine.submit(ids, params or self.default_params, stream=stream, owner=self)

    def chat(
        self,
        messages: Items[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        stream: bool = True,
        tools: Items[Mapping[str, Any]] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> Generation:
        """Answer a conversation, given whole each time: [{"role": ..., "content": ...}, ...].

        The KV of the turns before is still there and only what is new is run; `Timings.cached_tokens`
        tells how much that saved. `template_options` are passed to the chat template (say
        {"enable_thinking": False}). Raises ChatTemplateError if the model has no template or it refuses
        the messages, else as `generate`.
        """
        if self.chat_template is None:
            raise ChatTemplateError(
                f"{self.name} has no chat template (a base model?); use generate, or run it with --raw"
            )
        if not messages:
            raise UsageError("the conversation is empty; give at least one message")
        text = self.chat_template.render(
            messages, add_generation_prompt=True, tools=tools, **(template_options or {})
        )
        return self.generate(text, params, stream=stream)

    def complete(self, prompt: str | Items[int], params: SamplingParams | None = None) -> Completion:
        """`generate`, waited for and joined."""
        return self.generate(prompt, params).join()

    def guard_memory(
        self, settings: Settings | None = None, report: Callable[[GuardEvent], None] | None = None
    ) -> MemoryGuard:
        """Watch the machine's memory pressure, and give memory back in steps while it lasts.

        `memory.guard` has the steps; `report` hears of each, from the guard's thread. It ends with the model,
        or before by its own `close`. While memory is short `generate` and `chat` raise OverloadedError.
        """
        from edgeseek.engine.relief import EngineRelief
        from edgeseek.memory.guard import MemoryGuard
        from edgeseek.memory.pressure import watch_pressure

        monitor = watch_pressure(settings or Settings.from_environment())
        guard = MemoryGuard(EngineRelief(self.engine), monitor, report=report)
        self._guards.append(guard)
        guard.start()
        return guard

    def close(self) -> None:
        """End what runs and release the memory; safe to call twice."""
        self._finalize()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _package_path(
    model: str,
    scheme: str | None,
    keep_source: bool,
    settings: Settings,
    progress: Progress | None,
    say: Callable[[str], None],
) -> Path:
    path = local_path(model)
    if path is not None and is_package(path) and scheme is None:
        return path
    from edgeseek.store import Store

    pulled = Store(settings).pull(model, scheme=scheme, keep_source=keep_source, progress=progress)
    if pulled.summary is not None:
        say(f"imported {pulled.name} to {pulled.path}: {pulled.summary}")
    return pulled.path


def _exported_graph(model: str, backend: BackendName | None) -> Path | None:
    """The exported graph that `model` leads to, None where the native backend is to run it."""
    from edgeseek.runtime.onnx_graph import exported_graph_path

    path = local_path(model)
    graph = None if path is None or is_package(path) else exported_graph_path(path)
    if backend == "onnx" and graph is None:
        raise UsageError(f"{model} is no ONNX graph; make one with: edgeseek export {model} --output FOLDER")
    if backend == "native" and graph is not None:
        raise UsageError(f"{model} is an ONNX graph, which only the backend 'onnx' runs")
    return graph


def _threads(usable: int, asked: int | None) -> int:
    threads = usable if asked is None else asked
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"{threads} threads were asked for; give 1 to {MAX_THREADS}, or none")
    return threads


def _tokenizer(tokenizer_json: bytes, generation_config: Mapping[str, Any], config: ModelConfig) -> Tokenizer:
    """The tokenizer, with the special ids of generation_config.json, else the model's own."""
    bos = _token_ids(generation_config, "bos_token_id")
    return Tokenizer.from_json(
        tokenizer_json,
        bos_token_id=bos[0] if bos else config.bos_token_id,
        eos_token_ids=_token_ids(generation_config, "eos_token_id") or config.eos_token_ids,
    )


def _default_params(generation_config: Mapping[str, Any]) -> SamplingParams:
    try:
        return SamplingParams.from_generation_config(generation_config)
    except UsageError as error:
        raise PackageFormatError(
            f"generation_config.json cannot be followed: {error}; correct it in the package, or convert or "
            "pull the model again"
        ) from error


def _token_ids(generation_config: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """The token ids under `key`, which may be one or a list. Raises PackageFormatError for anything else."""
    value = generation_config.get(key)
    ids = () if value is None else tuple(value) if isinstance(value, (list, tuple)) else (value,)
    if not all(type(token) is int and 0 <= token < 1 << 31 for token in ids):
        raise PackageFormatError(
            f"{key} in generation_config.json is {value!r}, not a token id or a list of them; correct it in "
            "the package, or convert or pull the model again"
        )
    return ids


def _release(guards: list[MemoryGuard], engine: Engine, backend: Backend, package: Package | None) -> None:
    for guard in guards:
        guard.close()
    engine.close()
    backend.close()
    if package is not None:
        package.close()


def _one_of(choices: Any) -> str:
    return " or ".join(get_args(choices))


def _say_nothing(line: str) -> None:
    """A report that goes nowhere."""

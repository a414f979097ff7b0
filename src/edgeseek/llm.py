"""The facade: a name or path in, typed chunks out.

The only place that joins store, planner, tokenizer, runtime and engine. Knows nothing of HTTP or the
terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edgeseek.architectures.spec import ModelConfig
from edgeseek.checkpoints.catalogue import local_path
from edgeseek.engine import Chunk, Completion, Engine, FinishReason, Generation, SamplingParams, Timings
from edgeseek.engine.engine import SLOTS, STEP_TOKENS
from edgeseek.errors import ChatTemplateError, UsageError
from edgeseek.memory.cpus import usable_cpus
from edgeseek.memory.limits import memory_available
from edgeseek.memory.planner import MemoryPlan, plan
from edgeseek.package import Package, open_package
from edgeseek.runtime.backend import Backend
from edgeseek.settings import Settings
from edgeseek.store import Progress, Store, is_package
from edgeseek.tokenizer import ChatTemplate, Tokenizer

__all__ = ["LLM", "Chunk", "Completion", "FinishReason", "Generation", "SamplingParams", "Timings"]


class LLM:
    """A loaded model. Thread-safe; many generations may run at once. Close it, or use `with`.

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
        chat_template: ChatTemplate | None,
        generation_config: Mapping[str, Any],
        plan: MemoryPlan,
        package: Package | None = None,
    ) -> None:
        """Join parts that are loaded already; `load` is the usual way."""
        self.name = name
        self.tokenizer = tokenizer
        self.chat_template = chat_template
        self.default_params = SamplingParams.from_generation_config(generation_config)
        self.plan = plan
        self._backend = backend
        self._package = package
        self.engine = Engine(
            backend,
            tokenizer,
            context=plan.context,
            slots=max(plan.slots, SLOTS),
            step_tokens=STEP_TOKENS,
            eos_token_ids=(*backend.config.eos_token_ids, *_eos_ids(generation_config)),
        )

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
        keep_source: bool = False,
        settings: Settings | None = None,
        progress: Progress | None = None,
        report: Callable[[str], None] | None = None,
    ) -> LLM:
        """Load a package, a Hugging Face folder, a GGUF file, or a pulled or catalogue name.

        What is not a package yet is downloaded and converted once, see `Store.pull` (`scheme`,
        `keep_source`, `progress`). `context` is in tokens, prompt and answer together (default: the least
        of the model's, 8192 and what fits). `slots` is how many full contexts the KV pool holds; more
        and shorter generations share it. `threads` defaults to what the machine's limits allow.
        `budget` caps the bytes this model may take. `report` gets one line for each thing done.

        Raises UnknownModelError, UsageError, CheckpointError, PackageError, DownloadError, StorageError,
        DoesNotFitError (with the numbers), TokenizerError or RuntimeFailure.
        """
        settings = settings or Settings.from_environment()
        say = report or _say_nothing
        path = _package_path(str(model), scheme, keep_source, settings, progress, say)
        package = open_package(path)
        try:
            return cls._from_package(package, context, slots, threads, budget, settings, say)
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
        settings: Settings,
        say: Callable[[str], None],
    ) -> LLM:
        from edgeseek.runtime.native import NativeBackend

        threads = usable_cpus(settings).threads if threads is None else threads
        memory = plan(
            package.config,
            package.weight_bytes,
            limits=memory_available(settings),
            context=context,
            slots=slots,
            threads=threads,
            step_tokens=STEP_TOKENS,
            logit_rows=max(slots, SLOTS),
            budget=budget,
        )
        say(f"{package.name}: {memory.summary}")
        generation_config = package.generation_config
        # A large vocabulary takes as long to load as all the rest; the library releases the GIL meanwhile.
        with ThreadPoolExecutor(1) as aside:
            loading = aside.submit(
                Tokenizer.from_json,
                package.tokenizer_json,
                bos_token_id=generation_config.get("bos_token_id", package.config.bos_token_id),
                eos_token_ids=_eos_ids(generation_config) or package.config.eos_token_ids,
            )
            backend = NativeBackend(package, blocks=memory.blocks, threads=threads, isa=settings.isa)
        try:
            tokenizer = loading.result()
            source = package.chat_template
            template = (
                None
                if source is None
                else ChatTemplate(source, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token)
            )
            return cls(
                name=package.name,
                backend=backend,
                tokenizer=tokenizer,
                chat_template=template,
                generation_config=generation_config,
                plan=memory,
                package=package,
            )
        except BaseException:
            backend.close()
            raise

    @property
    def config(self) -> ModelConfig:
        return self._backend.config

    @property
    def context(self) -> int:
        """Tokens of prompt and answer together, at most."""
        return self.plan.context

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
        return self.engine.submit(ids, params or self.default_params, stream=stream)

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

    def close(self) -> None:
        """End what runs and release the memory; safe to call twice."""
        self.engine.close()
        self._backend.close()
        if self._package is not None:
            self._package.close()

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
    pulled = Store(settings).pull(model, scheme=scheme, keep_source=keep_source, progress=progress)
    if pulled.summary is not None:
        say(f"imported {pulled.name} to {pulled.path}: {pulled.summary}")
    return pulled.path


def _eos_ids(generation_config: Mapping[str, Any]) -> tuple[int, ...]:
    value = generation_config.get("eos_token_id")
    if value is None:
        return ()
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _say_nothing(line: str) -> None:
    """A report that goes nowhere."""

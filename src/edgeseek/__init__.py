"""edgeseek runs DeepSeek-family language models on small Linux machines.

    import edgeseek

    llm = edgeseek.load("smollm2-135m")
    for chunk in llm.chat([{"role": "user", "content": "Hello"}]):
        print(chunk.text, end="", flush=True)

The names in `__all__` are the public API; everything else may change. They are imported on first use, so
that `import edgeseek` costs almost nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeseek import errors
    from edgeseek.llm import LLM, SamplingParams

__version__ = "0.1.0"

__all__ = ["LLM", "SamplingParams", "__version__", "errors", "load"]


def load(model: str = "smollm2-135m", **options: Any) -> LLM:
    """Load a model by name or path; short for `LLM.load`, which lists the options and the errors."""
    from edgeseek.llm import LLM

    return LLM.load(model, **options)


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("edgeseek.errors")
    if name in ("LLM", "SamplingParams"):
        return getattr(importlib.import_module("edgeseek.llm"), name)
    raise AttributeError(f"module 'edgeseek' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

"""Options that several commands share, and their translation to SamplingParams."""

from __future__ import annotations

import os
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeseek.errors import UsageError

if TYPE_CHECKING:
    from edgeseek.llm import SamplingParams
    from edgeseek.memory.sizes import KvType

#: What `run` uses when no model is named.
DEFAULT_MODEL = "smollm2-135m"
_MODELS_OWN = "the model's own"

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A catalogue name, a Hugging Face hub name, a pulled model, or a path to a package, a "
        "checkpoint folder, a GGUF file or an exported graph.",
        show_default=False,
    ),
]
Scheme = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        metavar="SCHEME",
        help="Quantize to f32, f16, q8 or q4 when importing. A GGUF keeps its own values by default, "
        "everything else becomes q8.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=1024,
        help="Compute threads.",
        show_default="what the limits allow",
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        metavar="N",
        min=1,
        help="Tokens of prompt and answer together.",
        show_default="least of the model's, 8192 and what fits",
    ),
]
Kv = Annotated[
    str,
    typer.Option(
        "--kv", metavar="f16|int8", help="How keys and values are stored; int8 takes half the memory."
    ),
]
Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="SIZE",
        help="Bytes that the model may take, such as 2GiB or 800MB.",
        show_default="what the limits leave",
    ),
]
MemoryHigh = Annotated[
    str | None,
    typer.Option(
        "--memory-high",
        metavar="SIZE",
        help="Run in a cgroup of its own that the kernel slows down and reclaims from above SIZE.",
        show_default="none",
    ),
]
MemoryMax = Annotated[
    str | None,
    typer.Option(
        "--memory-max",
        metavar="SIZE",
        help="Run in a cgroup of its own that the kernel ends above SIZE.",
        show_default="none",
    ),
]
Slots = Annotated[
    int,
    typer.Option("--slots", metavar="N", min=1, help="How many full contexts the KV cache holds."),
]
PreloadName = Annotated[
    str,
    typer.Option(
        "--preload",
        metavar="none|populate|lock|copy",
        help="How the weights come into memory: when touched, read ahead in the background, read and kept "
        "(mlock), or copied to huge pages.",
    ),
]
SpeculationName = Annotated[
    str,
    typer.Option(
        "--speculation",
        metavar="lookup|off",
        help="Guess tokens from the text so far and verify several in one step; the answer is the same.",
    ),
]
BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="native|onnx",
        help="What runs the model: the own core, or ONNX Runtime a graph that `edgeseek export` wrote.",
        show_default="onnx for an .onnx file or its folder, else native",
    ),
]
Provider = Annotated[
    str | None,
    typer.Option(
        "--provider",
        metavar="NAME",
        help="ONNX Runtime's execution provider, as `edgeseek doctor` lists them.",
        show_default="the CPU's",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(i?)[bB]?")


def byte_count(option: str, text: str | None) -> int | None:
    """Bytes of a size such as "2GiB", "800MB", "1.5G" or "1048576"; a prefix with i is a power of 1024.

    Raises UsageError naming `option` for anything else.
    """
    if text is None:
        return None
    found = _SIZE.fullmatch(text.strip())
    if found is None or (found[3] and not found[2]):
        raise UsageError(f"{option} is {text!r}; give a size such as 2GiB, 800MB or a number of bytes")
    # Exact: a large number of bytes is no float.
    return int(
        Fraction(found[1]) * (1024 if found[3] else 1000) ** " kMGT".index(found[2].replace("K", "k") or " ")
    )


def kv_type(text: str) -> KvType:
    """The KV type called `text`. Raises UsageError."""
    from edgeseek.memory.sizes import KV_TYPES

    for known in KV_TYPES:
        if known == text:
            return known
    raise UsageError(f"a KV cache of type {text!r} is unknown; give {' or '.join(KV_TYPES)}")


def check_text(option: str, text: str) -> str:
    """The text of an option, read as UTF-8 whatever the locale is.

    In a locale that is not UTF-8 Python keeps an argument's bytes as surrogates (PEP 383); they are put
    together again here. Raises UsageError where they are no UTF-8.
    """
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError as error:
        raise UsageError(f"the text of {option} is not UTF-8; check what the terminal sends") from error


Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", "-t", metavar="T", help="0 takes the likeliest token.", show_default=_MODELS_OWN
    ),
]
TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k", metavar="K", help="Draw from the K likeliest tokens; 0 for all.", show_default=_MODELS_OWN
    ),
]
TopP = Annotated[
    float | None,
    typer.Option(
        "--top-p",
        metavar="P",
        help="Draw from the likeliest tokens that hold this share.",
        show_default=_MODELS_OWN,
    ),
]
MinP = Annotated[
    float | None,
    typer.Option(
        "--min-p",
        metavar="P",
        help="Drop tokens below this share of the likeliest one's.",
        show_default=_MODELS_OWN,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    typer.Option(
        "--repetition-penalty", metavar="R", help="Above 1 discourages repetition.", show_default=_MODELS_OWN
    ),
]
PresencePenalty = Annotated[
    float | None,
    typer.Option(
        "--presence-penalty",
        metavar="P",
        help="Taken from the logits of tokens that occurred in the answer.",
        show_default="0",
    ),
]
FrequencyPenalty = Annotated[
    float | None,
    typer.Option(
        "--frequency-penalty", metavar="P", help="The same for each time they occurred.", show_default="0"
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", help="Same seed, same answer.", show_default="a new one each time"),
]
Stop = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="TEXT", help="End the answer before this text; may be given again."),
]


def sampling_params(base: SamplingParams, **given: Any) -> SamplingParams:
    """`base` with the options that were given. Raises UsageError for a value out of range."""
    changes = {name: value for name, value in given.items() if value is not None}
    if "stop" in changes:
        changes["stop"] = tuple(check_text("--stop", text) for text in changes["stop"])
    return base.with_changes(**changes)

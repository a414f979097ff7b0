"""Chat templates: messages in, the model's prompt text out.

Owns what Hugging Face's `apply_chat_template` offers a template: its helpers, filters and variables.
The sandbox and its limits are in template_sandbox.py. Knows nothing of ids; encode the result with
`Tokenizer.encode_prompt`, which adds a BOS only where the template wrote none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from edgeseek.errors import ChatTemplateError
from edgeseek.tokenizer.template_meter import Meter, TemplateLimits
from edgeseek.tokenizer.template_sandbox import MeteredEnvironment

Message = Mapping[str, Any]

_FILENAME = "<template>"
_LARGEST_INDENT = 64


class _RefusedMessagesError(jinja2.TemplateError):
    """The template called `raise_exception`."""


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks the answer for training; here it only prints."""

    tags = {"generation"}  # noqa: RUF012  # jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _local_time() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """A compiled chat template; safe to share between threads."""

    def __init__(
        self,
        source: str,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        now: Callable[[], datetime] = _local_time,
        monotonic: Callable[[], float] = time.monotonic,
        limits: TemplateLimits | None = None,
    ) -> None:
        """Compile `source`; raises ChatTemplateError with the line of a syntax error.

        `now` answers the template's `strftime_now`. `monotonic` (seconds) bounds a rendering's time.
        """
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self._limits = TemplateLimits() if limits is None else limits
        self._monotonic = monotonic
        if len(source) > self._limits.source_size:
            raise ChatTemplateError(
                f"the chat template has {len(source)} characters; the limit is {self._limits.source_size}"
            )
        self._environment = MeteredEnvironment(
            extensions=[loopcontrols, _GenerationTag], filters={"tojson": _tojson}
        )
        self._environment.globals.update(
            raise_exception=_raise_exception,
            strftime_now=lambda format: now().strftime(format),  # noqa: A006  # the name templates use
        )
        try:
            with self._environment.metered(self._new_meter()):
                self._template = self._environment.compile_metered(source)
        except jinja2.TemplateSyntaxError as error:
            raise ChatTemplateError(
                f"the chat template is malformed at line {error.lineno}: {error.message}; "
                f"fix it or run without a template"
            ) from error
        except Exception as error:  # compiling hostile nesting fails in many ways
            raise ChatTemplateError(f"the chat template cannot be compiled: {_reason(error)}") from error

    def render(
        self,
        messages: Sequence[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Any] | None = None,
        **extra: Any,
    ) -> str:
        """The prompt text for `messages` (each with "role" and "content").

        With `add_generation_prompt` it ends where the assistant's answer begins. `extra` are further
        variables of the template ("enable_thinking", "documents"). Raises ChatTemplateError with the
        template's line if the template refuses the messages, fails, or exceeds its limits.
        """
        for index, message in enumerate(messages):
            if not isinstance(message, Mapping):
                raise ChatTemplateError(
                    f"message {index} is a {type(message).__name__}; pass objects with role and content"
                )
        variables = {
            "documents": None,
            **self._tokens,
            **extra,
            "messages": list(messages),
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            with self._environment.metered(self._new_meter()):
                return self._template.render(variables)
        except _RefusedMessagesError as error:
            raise ChatTemplateError(
                f"the chat template refused the messages (line {_line(error.__traceback__)}): {error.message}"
            ) from error
        except SecurityError as error:
            raise ChatTemplateError(
                f"the chat template was stopped at line {_line(error.__traceback__)}: {_reason(error)}; "
                f"use a template from a source you trust"
            ) from error
        except Exception as error:  # a template can raise whatever its operations raise
            raise ChatTemplateError(
                f"the chat template failed at line {_line(error.__traceback__)}: {_reason(error)}; "
                f"check that the messages have the form it expects"
            ) from error

    def _new_meter(self) -> Meter:
        return Meter(self._limits, self._monotonic)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Hugging Face's tojson: readable Unicode, no HTML escapes."""
    width = len(indent) if isinstance(indent, str) else indent or 0
    if width > _LARGEST_INDENT:
        raise SecurityError(f"it indents JSON by more than {_LARGEST_INDENT}")
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise _RefusedMessagesError(str(message))


def _reason(error: BaseException) -> str:
    if isinstance(error, jinja2.TemplateError) and error.message:
        return error.message
    return f"{type(error).__name__}: {error}"


def _line(traceback: TracebackType | None) -> int:
    """The template's innermost line in a traceback that Jinja has rewritten; 0 if there is none."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILENAME:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line

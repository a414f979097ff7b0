"""The interactive chat: keeps the history, streams answers, Ctrl-C stops an answer and not the program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgeseek.cli.answer import Answer, show
from edgeseek.cli.terminal import Terminal
from edgeseek.errors import EdgeseekError

if TYPE_CHECKING:
    from edgeseek.llm import Chunk

Message = Mapping[str, str]

_HELP = """\
/help            show this
/reset           forget the conversation
/exit, Ctrl-D    leave
Ctrl-C           stop the answer
\"""              begin and end a message of several lines"""
_PROMPT, _MORE = ">>> ", "... "
_FENCE = '"""'


class Chat:
    """One conversation on a terminal.

    `ask` streams the answer to a list of messages; `timings` writes the line below an answer.
    """

    def __init__(
        self,
        terminal: Terminal,
        ask: Callable[[Sequence[Message]], Iterator[Chunk]],
        timings: Callable[[Answer], None],
        system: str | None = None,
    ) -> None:
        self._terminal = terminal
        self._ask = ask
        self._timings = timings
        self._opening: list[Message] = [] if system is None else [{"role": "system", "content": system}]
        self._messages: list[Message] = list(self._opening)

    def loop(self) -> None:
        """Read, answer, repeat, until /exit or the end of input."""
        self._terminal.note("/help lists the commands, Ctrl-D leaves")
        while True:
            try:
                text = self._read()
                if text.startswith("/") and "\n" not in text:
                    if not self._command(text):
                        return
                elif text:
                    self._turn(text)
            except EOFError:
                self._terminal.break_line()
                return
            except KeyboardInterrupt:
                self._terminal.break_line()
                self._terminal.note("Ctrl-D or /exit leaves")

    def _read(self) -> str:
        line = self._terminal.read_line(_PROMPT)
        if not line.startswith(_FENCE):
            return line.strip()
        lines = [line.removeprefix(_FENCE)]
        while not lines[-1].rstrip().endswith(_FENCE):
            lines.append(self._terminal.read_line(_MORE))
        lines[-1] = lines[-1].rstrip().removesuffix(_FENCE)
        return "\n".join(lines).strip("\n")

    def _command(self, text: str) -> bool:
        """Carry out a slash command; False leaves the loop."""
        word = text.split(maxsplit=1)[0]
        if word in ("/exit", "/quit", "/bye"):
            return False
        if word in ("/reset", "/clear"):
            self._messages = list(self._opening)
            self._terminal.note("the conversation is forgotten")
        elif word in ("/help", "/?"):
            self._terminal.note(_HELP)
        else:
            self._terminal.note(f"there is no command {word}; /help lists them")
        return True

    def _turn(self, text: str) -> None:
        messages = [*self._messages, {"role": "user", "content": text}]
        answer = Answer()
        try:
            stopped = self._stream(messages, answer)
        except EdgeseekError as error:
            self._terminal.error(f"{error} (/reset forgets the conversation)")
            return
        self._terminal.line()
        if stopped:
            self._terminal.note("stopped")
        else:
            self._timings(answer)
        # Templates want user and assistant in turn, so a question without an answer is not kept.
        if answer.text:
            self._messages = [*messages, {"role": "assistant", "content": answer.text}]

    def _stream(self, messages: Sequence[Message], answer: Answer) -> bool:
        """Show one answer; True if Ctrl-C stopped it."""
        chunks = self._ask(messages)
        try:
            show(chunks, self._terminal.write, answer)
        except KeyboardInterrupt:
            return True
        finally:
            close = getattr(chunks, "close", None)
            if close is not None:
                close()
        return False

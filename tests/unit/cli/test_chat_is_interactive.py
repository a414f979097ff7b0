"""The chat: history, slash commands, Ctrl-C that stops an answer and not the program."""

from __future__ import annotations

from edgeseek.errors import PromptTooLongError
from tests.unit.cli.fakes import Console

ANSWER = {"role": "assistant", "content": "Blue light scatters."}


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def asked(console: Console) -> list[list[dict[str, str]]]:
    return [messages for _, messages, _ in console.llm.asked]


def test_each_turn_is_asked_with_the_history(console: Console) -> None:
    found = console.run("run", stdin="one\ntwo\n", terminal=True)
    assert found.code == 0
    assert asked(console) == [[user("one")], [user("one"), ANSWER, user("two")]]
    assert found.out == "Blue light scatters.\nBlue light scatters.\n"
    assert found.err.count("[prompt 50 tokens") == 2
    assert console.llm.closed


def test_reset_forgets_the_conversation_and_keeps_the_system_text(console: Console) -> None:
    console.run("run", "--system", "Be brief.", stdin="one\n/reset\ntwo\n", terminal=True)
    system = {"role": "system", "content": "Be brief."}
    assert asked(console) == [[system, user("one")], [system, user("two")]]


def test_exit_leaves_and_what_follows_is_not_asked(console: Console) -> None:
    found = console.run("run", stdin="/exit\nunasked\n", terminal=True)
    assert (found.code, asked(console)) == (0, [])


def test_help_and_unknown_commands_are_answered_by_the_program(console: Console) -> None:
    found = console.run("run", stdin="/help\n/frobnicate\n\n", terminal=True)
    assert asked(console) == []
    assert "/reset           forget the conversation" in found.err
    assert "there is no command /frobnicate; /help lists them" in found.err


def test_a_message_of_several_lines(console: Console) -> None:
    console.run("run", stdin='"""first\n/second\nthird"""\n"""one line"""\n', terminal=True)
    assert asked(console)[0] == [user("first\n/second\nthird")]
    assert asked(console)[1][-1] == user("one line")


def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(console: Console) -> None:
    console.llm.raises = {2: KeyboardInterrupt()}
    found = console.run("run", stdin="one\ntwo\n", terminal=True)
    assert found.code == 0
    assert asked(console)[1] == [
        user("one"),
        {"role": "assistant", "content": "Blue light "},
        user("two"),
    ]
    assert "stopped" in found.err


def test_ctrl_c_before_the_first_word_forgets_the_question(console: Console) -> None:
    console.llm.raises = {0: KeyboardInterrupt()}
    console.run("run", stdin="one\ntwo\n", terminal=True)
    assert asked(console)[1] == [user("two")]


def test_a_conversation_that_outgrows_the_context_goes_on(console: Console) -> None:
    console.llm.raises = {0: PromptTooLongError(9000, 8192)}
    found = console.run("run", stdin="one\n/reset\ntwo\n", terminal=True)
    assert found.code == 0
    assert "the prompt has 9000 tokens and the context holds 8192" in found.err
    assert "/reset forgets the conversation" in found.err
    assert asked(console)[1] == [user("two")]


def test_raw_chat_continues_each_line_by_itself(console: Console) -> None:
    console.run("run", "--raw", stdin="one\ntwo\n", terminal=True)
    assert [(how, what) for how, what, _ in console.llm.asked] == [("generate", "one"), ("generate", "two")]

"""`run` with a prompt: the answer alone on stdout, everything else on stderr, options passed on."""

from __future__ import annotations

import json

import pytest

from edgeseek.engine import SamplingParams
from edgeseek.errors import DoesNotFitError, PromptTooLongError, UnknownModelError
from tests.unit.cli.fakes import Console


def test_stdout_carries_the_answer_and_nothing_else(console: Console) -> None:
    found = console.run("run", "some-model", "--prompt", "Why is the sky blue?")
    assert found.code == 0
    assert found.out == "Blue light scatters.\n"
    assert console.llm.asked == [
        ("chat", [{"role": "user", "content": "Why is the sky blue?"}], SamplingParams())
    ]
    assert console.llm.closed


def test_stderr_says_the_planned_context_and_ends_with_the_timings(console: Console) -> None:
    lines = console.run("run", "--prompt", "Hi").err.splitlines()
    assert lines[0].startswith("fake-model: context 2048 (the model's); needs ")
    assert lines[-1] == (
        "[prompt 50 tokens, 100.0/s · answer 3 tokens, 100.0/s · loaded in 0.25 s · peak memory 2.0 MB]"
    )


def test_without_a_model_smollm2_is_used(console: Console) -> None:
    console.run("run", "--prompt", "Hi")
    assert console.llm.load_options["model"] == "smollm2-135m"


def test_load_options_are_passed_on(console: Console) -> None:
    console.run("run", "m", "--prompt", "Hi", "--context", "512", "--threads", "3", "--scheme", "q4")
    options = console.llm.load_options
    assert (options["context"], options["threads"], options["scheme"]) == (512, 3, "q4")
    assert options["settings"] is console.settings


def test_sampling_options_change_only_what_was_given(console: Console) -> None:
    console.llm.default_params = SamplingParams(temperature=0.6, top_p=0.95)
    words = [
        "--top-k",
        "40",
        "--min-p",
        "0.1",
        "--seed",
        "5",
        "--max-tokens",
        "9",
        "--stop",
        "a",
        "--stop",
        "b",
    ]
    words += ["--repetition-penalty", "1.1", "--presence-penalty", "0.2", "--frequency-penalty", "0.3"]
    console.run("run", "--prompt", "Hi", "--temperature", "0", *words)
    assert console.llm.asked[0][2] == SamplingParams(
        temperature=0.0,
        top_p=0.95,
        top_k=40,
        min_p=0.1,
        seed=5,
        max_tokens=9,
        stop=("a", "b"),
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
    )


def test_system_precedes_the_prompt(console: Console) -> None:
    console.run("run", "--prompt", "Hi", "--system", "Be brief.")
    assert console.llm.asked[0][1] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_raw_leaves_the_chat_template_out(console: Console) -> None:
    console.run("run", "--raw", "--prompt", "def f(")
    assert console.llm.asked == [("generate", "def f(", SamplingParams())]


def test_a_model_without_a_template_continues_the_text_and_says_so(console: Console) -> None:
    console.llm.chat_template = None
    found = console.run("run", "--prompt", "def f(")
    assert console.llm.asked[0][:2] == ("generate", "def f(")
    assert "this model has no chat template; it continues the text as it is" in found.err


def test_a_system_text_that_no_template_would_show_the_model_is_refused(console: Console) -> None:
    console.llm.chat_template = None
    found = console.run("run", "--prompt", "x", "--system", "be brief")
    assert (found.code, found.out, console.llm.asked) == (2, "", [])
    assert "fake-model has no chat template, which --system needs" in found.err


def test_the_prompt_is_read_from_a_pipe_without_its_last_newline(console: Console) -> None:
    found = console.run("run", stdin="two\nlines\n")
    assert found.out == "Blue light scatters.\n"
    assert console.llm.asked[0][1] == [{"role": "user", "content": "two\nlines"}]


def test_an_answer_that_ends_with_a_newline_gets_no_second_one(console: Console) -> None:
    console.llm.pieces = ("done\n",)
    assert console.run("run", "--prompt", "Hi").out == "done\n"


def test_json_is_one_object_with_the_documented_fields(console: Console) -> None:
    console.llm.pieces = ("蓝", "色 😀")
    found = console.run("run", "--prompt", "Hi", "--json")
    assert found.out.count("\n") == 1
    assert json.loads(found.out) == {
        "text": "蓝色 😀",
        "token_ids": [0, 1],
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 50, "completion_tokens": 2},
        "timings": {
            "load_s": 0.25,
            "prefill_tokens_per_s": 100.0,
            "decode_tokens_per_s": 100.0,
            "drafted_tokens": 0,
            "accepted_tokens": 0,
            "peak_rss_bytes": 2048000,
        },
    }


@pytest.mark.parametrize(
    ("words", "stdin", "message"),
    [
        (["--prompt", ""], "", "the prompt from --prompt is empty"),
        ([], "\n", "the prompt from stdin is empty"),
        (["--raw", "--system", "x", "--prompt", "y"], "", "--system needs the chat template"),
        (["--prompt", "\udcff"], "", "the text of --prompt is not UTF-8"),
        (["--prompt", "x", "--stop", "\udcff"], "", "the text of --stop is not UTF-8"),
        (["--prompt", "x", "--system", "\udcff"], "", "the text of --system is not UTF-8"),
        (["--prompt", "x", "--stop", ""], "", "give non-empty strings"),
        (["--prompt", "x", "--temperature", "-1"], "", "temperature is -1.0"),
    ],
)
def test_what_the_user_can_correct_is_one_line_and_exit_code_2(
    console: Console, words: list[str], stdin: str, message: str
) -> None:
    found = console.run("run", *words, stdin=stdin)
    assert (found.code, found.out) == (2, "")
    assert message in found.err.splitlines()[-1]
    assert "Traceback" not in found.err


def test_json_without_a_prompt_on_a_terminal_is_refused(console: Console) -> None:
    found = console.run("run", "--json", terminal=True)
    assert found.code == 2
    assert "--json prints one answer" in found.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownModelError("there is no model 'x'"), 2),
        (PromptTooLongError(9000, 8192), 2),
        (DoesNotFitError("the model needs too much", needed=2, available=1), 1),
    ],
)
def test_an_error_while_answering_is_one_line_and_its_exit_code(
    console: Console, error: Exception, code: int
) -> None:
    console.llm.raises = {0: error}
    found = console.run("run", "--prompt", "Hi")
    assert found.code == code
    assert found.err.splitlines()[-1] == f"edgeseek: {error}"
    assert found.out == ""
    assert console.llm.closed


def test_an_error_in_the_middle_of_an_answer_leaves_whole_lines(console: Console) -> None:
    console.llm.raises = {2: DoesNotFitError("no memory", needed=2, available=1)}
    found = console.run("run", "--prompt", "Hi")
    assert (found.code, found.out) == (1, "Blue light \n")


def test_ctrl_c_ends_a_one_shot_answer_with_130(console: Console) -> None:
    console.llm.raises = {2: KeyboardInterrupt()}
    found = console.run("run", "--prompt", "Hi")
    assert (found.code, found.out) == (130, "Blue light \n")
    assert console.llm.closed


def test_a_models_control_characters_do_not_reach_a_terminal(console: Console) -> None:
    console.llm.pieces = ("\x1b]0;title\x07red\x1b[31m\ttab",)
    assert console.run("run", "--prompt", "Hi", terminal=True).out == "]0;titlered[31m\ttab\n"
    assert console.run("run", "--prompt", "Hi").out == "\x1b]0;title\x07red\x1b[31m\ttab\n"

"""OpenAI's own client, sync, async and streaming, against a real server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from edgeseek.settings import Settings
from tests.unit.server.local import InThread, in_thread
from tests.unit.server.served import Loader

QUESTION: Any = [{"role": "user", "content": "return the model"}]


@pytest.fixture(scope="module")
def server(package: tuple[Path, Settings]) -> Iterator[InThread]:
    with in_thread(Loader(*package), api_keys=("sk-test",)) as server:
        yield server


@pytest.fixture
def client(server: InThread) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0, timeout=30) as client:
        yield client


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_completion_tokens=6, logprobs=True, top_logprobs=2, n=2, seed=1
    )
    assert len(answer.choices) == 2
    first = answer.choices[0]
    assert first.finish_reason == "length"
    assert first.message.role == "assistant"
    assert first.logprobs is not None
    assert first.logprobs.content is not None
    assert len(first.logprobs.content) == 6
    assert len(first.logprobs.content[0].top_logprobs) == 2
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 12
    assert answer.usage.prompt_tokens_details is not None
    assert answer.system_fingerprint is not None


def test_a_stream_is_the_whole_answer(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=9)
    events = list(
        client.chat.completions.create(
            model="tiny",
            messages=QUESTION,
            max_tokens=9,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(event.choices[0].delta.content or "" for event in events if event.choices)
    assert text == whole.choices[0].message.content
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 9
    assert [event.usage for event in events[:-1]] == [None] * (len(events) - 1)


def test_the_clients_own_streaming_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model="tiny", messages=QUESTION, stop="assistant") as stream:
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason == "stop"
    assert final.choices[0].message.content == "<|"


def test_a_conversation_goes_on_with_what_the_client_got(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4)
    echoed = answer.choices[0].message.model_dump()
    messages: Any = [*QUESTION, echoed, {"role": "user", "content": "and"}]
    again = client.chat.completions.create(model="tiny", messages=messages, max_tokens=4)
    assert again.usage is not None
    assert answer.usage is not None
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens


def test_text_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=["the", "a"], max_tokens=5, logprobs=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert len(logprobs.tokens) == 5
    streamed = client.completions.create(model="tiny", prompt="the", max_tokens=5, stream=True)
    assert "".join(event.choices[0].text for event in streamed) == answer.choices[0].text
    ids = client.completions.create(model="tiny", prompt=[5, 6, 7], max_tokens=5)
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3


def test_the_example(server: InThread) -> None:
    example = Path(__file__).parents[3] / "examples/openai_client.py"
    found = subprocess.run(
        [sys.executable, str(example), f"{server.url}/v1"],
        env={**os.environ, "EDGESEEK_API_KEY": "sk-test"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert re.search(r"\n\[\d+ \+ 64 tokens\]\n$", found.stdout)


def test_models(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "edgeseek"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4")


def test_errors_are_the_clients_own_kinds(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="tiny", messages=QUESTION, extra_body={"made_up": 1})
    assert caught.value.param == "made_up"
    with pytest.raises(openai.BadRequestError, match="tokens and the context holds") as long:
        client.completions.create(model="tiny", prompt=[5] * 600)
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()


def test_many_at_once_from_the_async_client(server: InThread, client: openai.OpenAI) -> None:
    def ask(i: int) -> dict:
        return {"model": "tiny", "prompt": f"def {i} model", "max_tokens": 12, "seed": i, "temperature": 1.0}

    async def run() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0
        ) as several:

            async def stream(i: int) -> str:
                events = await several.completions.create(**ask(i), stream=True)
                return "".join([event.choices[0].text async for event in events])

            return list(await asyncio.gather(*(stream(i) for i in range(16))))

    together = asyncio.run(run())
    alone = [client.completions.create(**ask(i)).choices[0].text for i in range(16)]
    assert together == alone
    assert len(set(together)) > 8

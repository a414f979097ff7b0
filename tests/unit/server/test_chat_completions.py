"""POST /v1/chat/completions gives what the model gives, in OpenAI's form, whole or in events."""

from __future__ import annotations

import asyncio

import pytest

from edgeseek.engine import SamplingParams
from tests.unit.server.served import Loader, error_of, events, served

QUESTION = [{"role": "user", "content": "return the model"}]


def test_an_answer_is_the_models_own(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            got = (await s.chat()).json()
            wanted = s.llm.chat(QUESTION, SamplingParams(max_tokens=8)).join()
            assert got["object"] == "chat.completion"
            assert got["choices"] == [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": wanted.text},
                    "logprobs": None,
                    "finish_reason": "length",
                }
            ]
            assert got["usage"]["completion_tokens"] == 8
            assert got["usage"]["prompt_tokens"] == wanted.timings.prompt_tokens
            assert got["usage"]["total_tokens"] == 8 + wanted.timings.prompt_tokens
            assert got["system_fingerprint"].startswith("fp_")

    asyncio.run(run())


def test_the_totals_are_the_last_event_but_done_and_reasons_come_last(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            whole = (await s.chat()).json()
            response = await s.chat(stream=True, stream_options={"include_usage": True})
            assert response.headers["content-type"].startswith("text/event-stream")
            *chunks, totals = events(response)
            assert totals["choices"] == []
            assert totals["usage"] == whole["usage"]
            assert all(chunk["usage"] is None for chunk in chunks)
            reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
            assert reasons == [None] * (len(chunks) - 1) + ["length"]
            assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
            assert text == whole["choices"][0]["message"]["content"]
            assert len({chunk["id"] for chunk in [*chunks, totals]}) == 1

    asyncio.run(run())


def test_without_the_option_no_event_tells_of_usage(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            chunks = events(await s.chat(stream=True))
            assert all("usage" not in chunk and len(chunk["choices"]) == 1 for chunk in chunks)

    asyncio.run(run())


def test_a_seed_gives_n_different_answers_and_the_same_ones_again(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            ask = {"temperature": 3.0, "seed": 7, "n": 3}
            first = (await s.chat(**ask)).json()
            texts = [choice["message"]["content"] for choice in first["choices"]]
            assert [choice["index"] for choice in first["choices"]] == [0, 1, 2]
            assert len(set(texts)) == 3
            again = (await s.chat(**ask)).json()
            assert [choice["message"]["content"] for choice in again["choices"]] == texts
            second = (await s.chat(temperature=3.0, seed=8)).json()
            assert second["choices"][0]["message"]["content"] == texts[1]
            assert first["usage"]["completion_tokens"] == 24
            streamed = events(await s.chat(**ask, stream=True))
            joined = ["", "", ""]
            for chunk in streamed:
                (choice,) = chunk["choices"]
                joined[choice["index"]] += choice["delta"].get("content", "")
            assert joined == texts

    asyncio.run(run())


def test_log_probabilities_have_the_raw_bytes_of_each_token(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            got = (await s.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]["content"]
            params = SamplingParams(max_tokens=8, logprobs=2)
            wanted = s.llm.chat(QUESTION, params).join()
            assert [bytes(token["bytes"]) for token in got] == [
                s.llm.tokenizer.token_bytes(token) for token in wanted.token_ids
            ]
            assert [token["logprob"] for token in got] == [found.logprob for found in wanted.logprobs]
            for token, found in zip(got, wanted.logprobs, strict=True):
                assert [bytes(top["bytes"]) for top in token["top_logprobs"]] == [
                    s.llm.tokenizer.token_bytes(top) for top, _ in found.top
                ]
            streamed = events(await s.chat(logprobs=True, top_logprobs=2, stream=True))
            parts = [chunk["choices"][0]["logprobs"] for chunk in streamed]
            assert [token for part in parts if part for token in part["content"]] == got

    asyncio.run(run())


def test_fields_reach_the_sampler(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            free = (await s.chat()).json()["choices"][0]
            banned = s.llm.chat(QUESTION, SamplingParams(max_tokens=1)).join().token_ids[0]
            other = (await s.chat(logit_bias={str(banned): -100})).json()["choices"][0]
            assert other["message"]["content"] != free["message"]["content"]
            text = free["message"]["content"]
            for stop in (text[2:5], [text[2:5]]):
                stopped = (await s.chat(stop=stop)).json()["choices"][0]
                assert stopped["message"]["content"] == text[: text.index(text[2:5])]
                assert stopped["finish_reason"] == "stop"
            short = (await s.chat(max_tokens=None, max_completion_tokens=3)).json()
            assert short["usage"]["completion_tokens"] == 3

    asyncio.run(run())


def test_the_same_request_thrice_and_beside_others_gives_the_same_bits(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            long = [{"role": "user", "content": "return the model " * 20}]
            ask = {"messages": long, "temperature": 1.0, "seed": 3, "logprobs": True, "max_tokens": 24}
            alone = [(await s.chat(**ask)).json() for _ in range(3)]
            beside = await asyncio.gather(
                *(s.complete(f"def {i} " * i, max_tokens=30) for i in range(1, 7)), s.chat(**ask)
            )
            assert all(response.status_code == 200 for response in beside)
            answers = [body["choices"] for body in (*alone, beside[-1].json())]
            assert answers[0] == answers[1] == answers[2] == answers[3]
            cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for body in alone]
            assert cached[0] == 0
            assert cached[1] == cached[2] == alone[0]["usage"]["prompt_tokens"] - 1

    asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
         "messages[0].content[0].image_url"),
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"n": 10**30}, "n"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"seed": 1.5}, "seed"),
        ({"stop": ["x"] * 10_000}, "stop"),
        ({"stop": [""]}, "stop[0]"),
        ({"logit_bias": {"the": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"store": True}, "store"),
        ({"functions": []}, "functions"),
        ({"audio": {}}, "audio"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"made_up": 1}, "made_up"),
        ({"stream_options": {"include_usage": True, "x": 1}, "stream": True}, "stream_options.x"),
        ({"response_format": {"type": "yaml"}}, "response_format"),
        ({"service_tier": "flex"}, "service_tier"),
    ],
)  # fmt: skip
def test_what_is_wrong_or_unknown_is_400_and_named(load: Loader, changes: dict, param: str) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.chat(**changes)
            assert response.status_code == 400
            error = error_of(response)
            assert error["type"] == "invalid_request_error"
            assert error["param"].startswith(param)
            assert param.rsplit(".", maxsplit=1)[-1] in error["message"]

    asyncio.run(run())


def test_fields_that_ask_for_nothing_we_lack_are_accepted(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.chat(
                store=False,
                metadata={"a": "b"},
                user="me",
                service_tier="auto",
                modalities=["text"],
                response_format={"type": "text"},
                stop=None,
                tools=None,
                parallel_tool_calls=True,
            )
            assert response.status_code == 200, response.text

    asyncio.run(run())


def test_a_prompt_that_does_not_fit_is_400_with_both_numbers(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.chat(messages=[{"role": "user", "content": "x " * 900}])
            assert response.status_code == 400
            error = error_of(response)
            assert error["code"] == "context_length_exceeded"
            assert "tokens and the context holds 512" in error["message"]
            assert s.host.active == 0

    asyncio.run(run())


def test_another_model_is_404(load: Loader) -> None:
    async def run() -> None:
        async with served(load) as s:
            response = await s.chat(model="gpt-4")
            assert response.status_code == 404
            assert error_of(response)["code"] == "model_not_found"
            models = (await s.client.get("/v1/models")).json()
            assert [model["id"] for model in models["data"]] == ["tiny"]
            assert (await s.client.get("/v1/models/tiny")).json() == models["data"][0]
            assert (await s.client.get("/v1/models/gpt-4")).status_code == 404

    asyncio.run(run())

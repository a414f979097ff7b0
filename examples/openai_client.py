"""Asks a running `edgeseek serve`: python examples/openai_client.py [BASE_URL]; needs pip install openai."""

from __future__ import annotations

import os
import sys

from openai import OpenAI


def main() -> None:
    """Stream an answer, then show what it cost."""
    base_url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
    client = OpenAI(base_url=base_url, api_key=os.environ.get("EDGESEEK_API_KEY") or "none")
    model = next(iter(client.models.list())).id
    events = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Give me three tips for sleeping better."}],
        max_completion_tokens=64,
        stream=True,
        stream_options={"include_usage": True},
    )
    for event in events:
        if event.choices:
            print(event.choices[0].delta.content or "", end="", flush=True)
        elif event.usage is not None:
            print(f"\n[{event.usage.prompt_tokens} + {event.usage.completion_tokens} tokens]")


if __name__ == "__main__":
    main()

"""A conversation in the terminal: python examples/chat.py [MODEL]; an empty line ends it."""

from __future__ import annotations

import sys

import edgeseek


def main() -> None:
    """Keep the history; each turn runs only what is new."""
    model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
    messages: list[dict[str, str]] = []
    with edgeseek.load(model) as llm:
        params = llm.default_params.with_changes(max_tokens=256)
        while question := input("> "):
            messages.append({"role": "user", "content": question})
            answer = ""
            for chunk in llm.chat(messages, params):
                print(chunk.text, end="", flush=True)
                answer += chunk.text
                if chunk.timings is not None:
                    print(f"\n[{chunk.timings.cached_tokens} of {chunk.timings.prompt_tokens} tokens reused]")
            messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from edgeseek.tokenizer import ChatTemplate, Tokenizer
from tests.unit.tokenizer.vocabularies import r1


def test_sixteen_threads_equal_one(r1_tokenizer: Tokenizer) -> None:
    texts = [f"{text} {number}" for number in range(12) for text in r1()[1]][:200]
    template = ChatTemplate("{% for m in messages %}{{ m.content ~ loop.index }}{% endfor %}")

    def work(text: str) -> tuple[list[int], list[int], str, str]:
        ids = r1_tokenizer.encode_prompt(text)
        plain = r1_tokenizer.encode(text, special=False)
        return ids, plain, r1_tokenizer.decode(ids), template.render([{"content": text}])

    serial = [work(text) for text in texts]
    with ThreadPoolExecutor(16) as threads:
        runs = list(threads.map(lambda _: [work(text) for text in texts], range(16)))
    assert all(run == serial for run in runs)

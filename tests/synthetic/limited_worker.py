"""Processes that live in a limited group; started by path, they report in lines of JSON.

`full PACKAGE OPTIONS REQUESTS`: load, answer REQUESTS prompts that fill the context, on all slots.
`guarded PACKAGE OPTIONS TOKENS`: requests under a memory guard, until a line comes on stdin and it is calm.
`eat BYTES`: take private memory up to BYTES and keep it in use until stdin ends.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def say(**line: Any) -> None:
    print(json.dumps(line), flush=True)


def full(package: str, options: dict[str, Any], requests: int) -> None:
    from edgeseek.errors import DoesNotFitError
    from edgeseek.llm import LLM, SamplingParams

    try:
        llm = LLM.load(package, **options)
    except DoesNotFitError as error:
        say(refused=str(error), needed=error.needed, available=error.available)
        return
    with llm:
        vocabulary, length = llm.config.vocab_size, llm.context - 4
        answer = SamplingParams(max_tokens=4, ignore_eos=True)
        counted = 0
        while counted < requests:
            # No two begin alike, so that every one is computed.
            firsts = range(counted, min(counted + llm.plan.slots, requests))
            prompts = [[(first + 3 * j) % vocabulary for j in range(length)] for first in firsts]
            for generation in [llm.generate(prompt, answer) for prompt in prompts]:
                counted += len(generation.join().token_ids) == 4
        say(answered=counted, needed=llm.plan.needed, available=llm.plan.available)


def guarded(package: str, options: dict[str, Any], tokens_each: int) -> None:
    from edgeseek.engine import Generation
    from edgeseek.engine.relief import EngineRelief
    from edgeseek.errors import OverloadedError
    from edgeseek.llm import LLM, SamplingParams
    from edgeseek.memory.guard import GuardEvent, MemoryGuard
    from edgeseek.memory.pressure import watch_pressure
    from edgeseek.settings import Settings

    answer = SamplingParams(max_tokens=tokens_each, ignore_eos=True)
    prompts = [[(11 * i + 5 * j) % 300 for j in range(60)] for i in range(3)]
    running: list[Generation] = []

    def told(event: GuardEvent) -> None:
        refused = False
        if event.step == "stop_admitting" and not event.undone:
            try:
                llm.generate(prompts[0], answer).cancel()
            except OverloadedError:
                refused = True
        say(
            refused=refused,
            step=event.step,
            undone=event.undone,
            level=event.level.name,
            detail=event.detail,
            running=len(running),
        )

    with LLM.load(package, **options) as llm:
        expected = [llm.generate(prompt, answer).join().token_ids for prompt in prompts]
        monitor = watch_pressure(Settings.from_environment())
        guard = MemoryGuard(EngineRelief(llm.engine), monitor, settle_s=0.5, calm_s=3.0, report=told)
        say(ready=True, watched=monitor.names, anonymous=llm.plan.anonymous, files=llm.plan.file_backed)
        guard.start()
        same = ended = 0
        wrong: list[str] = []
        stop = False
        # The two older requests of each round must end as if nothing were; the newest may be ended.
        while not stop or guard.in_force:
            for prompt in prompts:
                try:
                    running.append(llm.generate(prompt, answer))
                except OverloadedError:
                    break
            idle = not running
            for i in range(len(running)):
                try:
                    tokens = running[0].join().token_ids
                except OverloadedError as error:
                    ended += 1
                    if "newest" not in str(error):
                        wrong.append(str(error))
                    continue
                finally:
                    del running[0]
                same += tokens == expected[i]
                if tokens != expected[i]:
                    wrong.append(f"request {i} has other tokens")
            if idle:
                time.sleep(0.05)
            stop = stop or bool(select.select([sys.stdin], [], [], 0)[0])
        guard.close()
        after = [llm.generate(prompt, answer).join().token_ids for prompt in prompts]
        say(
            same=same,
            ended=ended,
            wrong=wrong,
            back=after == expected,
            slots=llm.engine.between_steps(lambda scheduler, _: scheduler.slots),
            taken=dict(guard.taken),
        )


def eat(size: int) -> None:
    # Whoever is killed, it is this process.
    Path("/proc/self/oom_score_adj").write_text("1000")
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    step = 1 << 20
    for start in range(0, size - step + 1, step):
        memory[start : start + step : mmap.PAGESIZE] = b"x" * (step // mmap.PAGESIZE)
        if select.select([sys.stdin], [], [], 0.01)[0]:
            return
    say(eaten=size)
    sys.stdin.readline()


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "full":
        full(words[0], json.loads(words[1]), int(words[2]))
    elif what == "guarded":
        guarded(words[0], json.loads(words[1]), int(words[2]))
    else:
        eat(int(words[0]))

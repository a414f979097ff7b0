"""Items go from the engine's thread to the reader once, and only they wake it."""

from __future__ import annotations

import asyncio
import threading

from edgeseek.engine import Chunk
from edgeseek.server.generation import Bridge


def test_what_was_taken_already_does_not_wake_the_reader_again() -> None:
    async def run() -> None:
        bridge = Bridge(asyncio.get_running_loop())
        box = bridge.mailbox()
        bridge.deliver(box, (0, Chunk("a", (1,))))
        assert await box.take() == [(0, Chunk("a", (1,)))]
        reading = asyncio.ensure_future(box.take())
        bridge.flush()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not reading.done()
        bridge.deliver(box, (0, Chunk("b", (2,))))
        bridge.flush()
        assert await reading == [(0, Chunk("b", (2,)))]
        box.close()

    asyncio.run(run())


def test_every_item_of_another_thread_arrives_in_order() -> None:
    async def run() -> None:
        bridge = Bridge(asyncio.get_running_loop())
        boxes = [bridge.mailbox() for _ in range(3)]

        def deliver() -> None:
            for step in range(2000):
                for index, box in enumerate(boxes):
                    bridge.deliver(box, (index, Chunk("", (step,))))
                bridge.flush()

        thread = threading.Thread(target=deliver)
        thread.start()
        for index, box in enumerate(boxes):
            found: list[int] = []
            while len(found) < 2000:
                taken = await box.take()
                assert taken
                found += [item.token_ids[0] for at, item in taken if at == index and isinstance(item, Chunk)]
            assert found == list(range(2000))
        thread.join()

    asyncio.run(run())

"""What the engine gives up when the machine is short of memory. Implements `memory.guard.Relief`.

Everything happens between two steps, so no step meets it. What running sequences hold is left alone; only
`end_newest` ends one. Knows nothing of when a step is due.
"""

from __future__ import annotations

from edgeseek.engine.engine import Engine
from edgeseek.engine.scheduler import Scheduler
from edgeseek.errors import OverloadedError
from edgeseek.runtime.backend import Backend, GivesBack


class EngineRelief:
    """The steps of `memory.guard.STEPS`, on one engine. Each says what it did, "" where that was nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._all_slots: int | None = None

    def stop_admitting(self, reason: str, /) -> str:
        """See `Relief.stop_admitting`."""
        self._engine.refusal = reason
        return "new requests are refused"

    def admit_again(self) -> None:
        """See `Relief.admit_again`."""
        self._engine.refusal = None

    def drop_prefix_cache(self) -> str:
        """See `Relief.drop_prefix_cache`."""
        freed = self._engine.between_steps(lambda scheduler, _: scheduler.drop_retained())
        return f"{freed} KV blocks of finished requests are free" if freed else ""

    def release_kv_pages(self) -> str:
        """See `Relief.release_kv_pages`."""

        def release(scheduler: Scheduler, backend: Backend) -> int:
            if not isinstance(backend, GivesBack):
                return 0
            return backend.release_blocks(scheduler.blocks.free_blocks())

        given = self._engine.between_steps(release)
        return f"{given:,} bytes of free KV blocks given back" if given else ""

    def page_out_weights(self) -> str:
        """See `Relief.page_out_weights`."""

        def drop(_: Scheduler, backend: Backend) -> int:
            return backend.page_out_weights() if isinstance(backend, GivesBack) else 0

        given = self._engine.between_steps(drop)
        return f"{given:,} bytes of idle weights dropped" if given else ""

    def shrink_slots(self) -> str:
        """See `Relief.shrink_slots`: half of them, one at least."""

        def shrink(scheduler: Scheduler, _: Backend) -> tuple[int, int]:
            slots = scheduler.slots
            scheduler.slots = max(1, slots // 2)
            return slots, scheduler.slots

        before, after = self._engine.between_steps(shrink)
        if self._all_slots is None:
            self._all_slots = before
        return f"{after} of {self._all_slots} requests run at once" if after < before else ""

    def restore_slots(self) -> None:
        """See `Relief.restore_slots`."""
        slots, self._all_slots = self._all_slots, None
        if slots is not None:

            def restore(scheduler: Scheduler, _: Backend) -> None:
                scheduler.slots = slots

            self._engine.between_steps(restore)

    def end_newest(self, reason: str, /) -> str:
        """See `Relief.end_newest`."""
        tokens = self._engine.end_newest(OverloadedError(reason, started=True))
        return "" if tokens is None else f"the newest request was ended; its prompt had {tokens} tokens"

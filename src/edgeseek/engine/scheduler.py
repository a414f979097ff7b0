"""Which sequences run in the next step, and how many tokens of each.

A step is one mixed batch: every sequence that decodes gets its one token, so decodes never wait for
prompts; prompts share what is left of the step's token budget evenly (a short prompt is not stuck behind
a long one, nor the long one behind many short ones). Beside decodes the prompts' part is smaller, since a
decoding sequence waits for the whole step: on a small board 512 tokens of prompt take many seconds.

Memory is handed out optimistically. A sequence is admitted when the blocks for the tokens it has can be
had, and grows block by block; where growing fails, retained sequences are evicted, and then the youngest
running sequence is preempted: its blocks are freed and it waits to be computed again. Reserving
prompt + max_tokens instead would run one request at a time whenever max_tokens is left open, and
recomputing costs time but never changes a result, since the core gives the same bits however the tokens
are cut into steps. The oldest sequence can always go on, because one sequence never exceeds the pool.

Knows nothing of text, sampling or the backend beyond its capabilities.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items
from dataclasses import dataclass

from edgeseek.engine.block_manager import BlockManager, blocks_for
from edgeseek.engine.retention import RetainedSequences
from edgeseek.engine.sequence import Sequence
from edgeseek.engine.speculative import MAX_ROWS, StepCosts
from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.backend import BLOCK_TOKENS, Capabilities, Slice

#: Prompt tokens in a step that also decodes, at most; enough rows to keep the matrix kernels busy.
PROMPT_TOKENS_BESIDE_DECODES = 128


@dataclass(frozen=True)
class Scheduled:
    """A sequence's part of a step."""

    sequence: Sequence
    slice: Slice
    #: Proposed tokens that the slice ends with; the step verifies them.
    draft: tuple[int, ...] = ()

    @property
    def completes(self) -> bool:
        """Whether the step computes the last token the sequence has, so that the next one can be drawn."""
        return self.slice.logits != "none"


def _scheduled(s: Sequence, tokens: int, draft: tuple[int, ...] = ()) -> Scheduled:
    end = s.computed + tokens
    part = Slice(
        tokens=[*s.tokens[s.computed : end], *draft],
        past=s.computed,
        block_table=s.block_table[: blocks_for(end + len(draft))],
        logits="none" if end < len(s.tokens) else "all" if draft else "last",
    )
    return Scheduled(s, part, draft)


class Scheduler:
    """Waiting and running sequences, oldest first.

    `slots` is the most that run at once, and at most `step_tokens`, the tokens of one step. `costs` decides
    how many tokens a sequence's proposals may add to a step.
    """

    def __init__(
        self,
        num_blocks: int,
        capabilities: Capabilities,
        *,
        slots: int,
        step_tokens: int,
        retain: bool,
        costs: StepCosts | None = None,
    ) -> None:
        self.blocks = BlockManager(num_blocks)
        self.retained = RetainedSequences(self.blocks, capabilities)
        self._mixed = capabilities.mixed_batches
        self._slots = slots
        self._step_tokens = step_tokens
        self._retain = retain
        self._costs = costs if capabilities.rollback else None
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._prefilled_last = False

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self._waiting or self._running)

    @property
    def running(self) -> Items[Sequence]:
        """Those that have KV blocks, oldest first."""
        return tuple(self._running)

    @property
    def waiting(self) -> Items[Sequence]:
        """Those without KV blocks, next in line first."""
        return tuple(self._waiting)

    @property
    def slots(self) -> int:
        """The most sequences that run at once; fewer than run already only keeps others waiting."""
        return self._slots

    @slots.setter
    def slots(self, slots: int) -> None:
        self._slots = slots

    def drop_retained(self) -> int:
        """Free the blocks of all finished sequences; how many those were."""
        before = self.blocks.available
        while len(self.retained):
            self.retained.evict_oldest()
        return self.blocks.available - before

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence behind all others."""
        self._waiting.append(sequence)

    def schedule(self) -> list[Scheduled]:
        """Make room for those that run, admit, and divide the next step; empty if there is nothing to do."""
        for sequence in tuple(self._running):
            if sequence in self._running:
                self._grow(sequence)
        self._admit()
        decodes = [_scheduled(s, 1) for s in self._running if s.remaining == 1]
        prompts = [s for s in self._running if s.remaining > 1]
        if self._costs is not None and decodes and not prompts and not self._waiting:
            return self._speculate([item.sequence for item in decodes], self._costs)
        if not self._mixed and decodes and prompts:
            self._prefilled_last = not self._prefilled_last
            if self._prefilled_last:
                decodes = []
            else:
                prompts = []
        budget = self._step_tokens - len(decodes)
        if decodes:
            budget = min(budget, PROMPT_TOKENS_BESIDE_DECODES)
        return decodes + _share_evenly(prompts, budget)

    def _speculate(self, sequences: list[Sequence], costs: StepCosts) -> list[Scheduled]:
        """A step of decodes, with proposals where they pay and find room without taking anyone's."""
        rows, items = len(sequences), []
        for s in sequences:
            draft: tuple[int, ...] = ()
            free = (len(s.block_table) + self.blocks.available) * BLOCK_TOKENS - len(s.tokens)
            if s.lookup is not None:
                draft = s.lookup.propose(min(s.wanted - 1, free, MAX_ROWS - rows), costs, rows)
            self._extend(s, blocks_for(len(s.tokens) + len(draft)))
            rows += len(draft)
            items.append(_scheduled(s, 1, draft))
        return items

    def advance(self, scheduled: Scheduled) -> None:
        """Record that a part was computed; of a draft, `confirm` says what was right."""
        scheduled.sequence.computed += len(scheduled.slice.tokens) - len(scheduled.draft)

    def confirm(self, sequence: Sequence) -> None:
        """Record that a proposed token was drawn too, so that its KV counts."""
        sequence.computed += 1

    def remove(self, sequence: Sequence, *, retain: bool = True) -> None:
        """Take out a sequence that ended; its computed KV is retained unless it is suspect."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence in self._running:
            self._running.remove(sequence)
        if retain and self._retain and sequence.computed > 0:
            self.retained.keep(sequence.tokens[: sequence.computed], sequence.block_table, sequence.salt)
        else:
            self.blocks.release(sequence.block_table)
        sequence.block_table = []
        sequence.computed = 0

    def reserve(self, count: int) -> list[int]:
        """Take blocks for work outside of any sequence; raises RuntimeFailure if too few can be had."""
        self._make_room(count)
        return self.blocks.allocate(count)

    def check(self) -> None:
        """Verify the block books, and that no block about to be written is shared; raises RuntimeFailure."""
        self.blocks.check([*(s.block_table for s in self._running), *self.retained.tables()])
        for s in self._waiting:
            if s.block_table or s.computed:
                raise RuntimeFailure(f"sequence {s.id} waits and holds {len(s.block_table)} KV blocks")
        for s in self._running:
            if len(s.block_table) < blocks_for(s.computed):
                raise RuntimeFailure(
                    f"sequence {s.id} has {s.computed} tokens in {len(s.block_table)} blocks"
                )
            for block in s.block_table[s.computed // BLOCK_TOKENS :]:
                if self.blocks.holders(block) != 1:
                    raise RuntimeFailure(f"sequence {s.id} would write the shared KV block {block}")

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._slots:
            sequence = self._waiting[0]
            needed = blocks_for(len(sequence.tokens))
            pinned = len({block for s in self._running for block in s.block_table})
            if needed > self.blocks.num_blocks - pinned:
                return
            self._waiting.popleft()
            prefix = self.retained.claim(sequence.tokens, sequence.salt)
            sequence.block_table = prefix.block_table
            sequence.computed = prefix.tokens
            if sequence.preemptions == 0:
                sequence.cached_tokens = prefix.tokens
            self._running.append(sequence)
            self._extend(sequence, needed)

    def _grow(self, sequence: Sequence) -> None:
        """Make the table cover every token of the sequence, preempting the youngest if need be."""
        needed = blocks_for(len(sequence.tokens))
        while not self._extend(sequence, needed):
            victim = self._running.pop()
            self._preempt(victim)
            if victim is sequence:
                return

    def _extend(self, sequence: Sequence, needed: int) -> bool:
        missing = needed - len(sequence.block_table)
        if missing > 0:
            self._make_room(missing)
            if self.blocks.available < missing:
                return False
            sequence.block_table += self.blocks.allocate(missing)
        return True

    def _make_room(self, count: int) -> None:
        while self.blocks.available < count and len(self.retained):
            self.retained.evict_oldest()

    def _preempt(self, sequence: Sequence) -> None:
        self.blocks.release(sequence.block_table)
        sequence.block_table = []
        sequence.computed = 0
        sequence.preemptions += 1
        self._waiting.appendleft(sequence)


def _share_evenly(prompts: list[Sequence], budget: int) -> list[Scheduled]:
    """Divide `budget` tokens: everyone gets the same, what a short prompt leaves goes to the longer ones."""
    prompts = prompts[:budget]
    shares: dict[int, int] = {}
    for index, s in enumerate(sorted(prompts, key=lambda s: s.remaining)):
        shares[s.id] = min(s.remaining, budget // (len(prompts) - index))
        budget -= shares[s.id]
    return [_scheduled(s, shares[s.id]) for s in prompts]

"""What would fit where a model as asked for does not: the nearest changes, each with its plan.

One change at a time first: a smaller context, fewer slots, an int8 cache, a stronger quantization. Where no
single one is enough, they are combined in the order of how little they cost the user: int8 keys and values,
then fewer bits of the weights, then slots, and the context takes what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from edgeseek.errors import DoesNotFitError, UsageError
from edgeseek.memory.footprint import Footprint, Weights
from edgeseek.memory.limits import MemoryLimits
from edgeseek.memory.planner import MemoryPlan, available, plan
from edgeseek.memory.sizes import KV_BLOCK_TOKENS, STEP_SEQUENCES, VERIFIED_ROWS, KvType
from edgeseek.quantize.schemes import Scheme

#: Fewer tokens than this are no use for a conversation.
_LEAST_CONTEXT = 256


@dataclass(frozen=True)
class Wish:
    """What is to be planned: the model and how it is to run. `extra` is as in `plan`."""

    footprint: Footprint
    limits: MemoryLimits
    threads: int
    context: int | None = None
    slots: int = 1
    kv: KvType = "f16"
    budget: int | None = None
    #: A scheme to import at instead of what the footprint says.
    scheme: Scheme | None = None
    extra: int = 0

    @property
    def weights(self) -> Weights:
        """Bytes of the weights under this wish."""
        return self.footprint.weights if self.scheme is None else self.footprint.by_scheme[self.scheme]

    def plan(self) -> MemoryPlan:
        """The plan of it. Raises DoesNotFitError, UsageError or ContextTooLongError."""
        return plan(
            self.footprint.config,
            self.weights.total,
            expert_bytes=self.weights.experts,
            limits=self.limits,
            context=self.context,
            slots=self.slots,
            threads=self.threads,
            logit_rows=max(self.slots, STEP_SEQUENCES, VERIFIED_ROWS),
            budget=self.budget,
            kv=self.kv,
            extra=self.extra,
        )

    def unbounded(self) -> MemoryPlan:
        """What it needs, whether or not that fits. Raises UsageError or ContextTooLongError."""
        made = replace(self, budget=None, limits=_boundless(self.limits)).plan()
        room, reserve, decided_by = available(self.limits, self.budget, made.runtime)
        return replace(made, available=room, reserve=reserve, decided_by=decided_by)


@dataclass(frozen=True)
class Alternative:
    """A change that fits, as options of the command line, and its plan."""

    options: str
    plan: MemoryPlan


def alternatives(wish: Wish) -> list[Alternative]:
    """The nearest changes of `wish` that fit; empty where nothing does.

    One for each kind of change, with as small a context as that needs; all together where no one is enough.
    """
    found = [made for change in _single(wish) if (made := _tried(wish, change)) is not None]
    return found or [*_combined(wish)]


def _single(wish: Wish) -> Iterator[Wish]:
    """Each kind of change by itself, the mildest that fits or else the strongest."""
    yield replace(wish, context=None)
    kinds = [[replace(wish, slots=slots) for slots in _fewer(wish.slots)]]
    kinds.append([replace(wish, kv="int8")] if _may_be_int8(wish) else [])
    kinds.append([replace(wish, scheme=scheme) for scheme in _stronger(wish)])
    for kind in kinds:
        if kind:
            yield next((change for change in kind if _fitting(change) is not None), kind[-1])


def _combined(wish: Wish) -> Iterator[Alternative]:
    schemes: list[Scheme | None] = [wish.scheme, *_stronger(wish)]
    for scheme in schemes:
        for slots in (wish.slots, *_fewer(wish.slots)):
            changed = replace(wish, scheme=scheme, slots=slots, context=None)
            if _may_be_int8(wish):
                changed = replace(changed, kv="int8")
            made = _tried(wish, changed)
            least = min(_LEAST_CONTEXT, wish.footprint.config.max_context)
            if made is not None and made.plan.context >= least:
                yield made
                return


def _tried(wish: Wish, changed: Wish) -> Alternative | None:
    """`changed` where it fits, if need be with a smaller context."""
    made = _fitting(changed) or _smaller(changed, wish.context)
    if made is None:
        return None
    words = [] if changed.scheme == wish.scheme else [f"--scheme {changed.scheme}"]
    words += [] if changed.kv == wish.kv else [f"--kv {changed.kv}"]
    words += [] if changed.slots == wish.slots else [f"--slots {changed.slots}"]
    if made.context != wish.context and (wish.context is not None or made.context_reason == "what fits"):
        words.append(f"--context {made.context}")
    return Alternative(" ".join(words), made)


def _smaller(wish: Wish, context: int | None) -> MemoryPlan | None:
    """The plan with the largest context that fits, short of `context`."""
    made = _fitting(replace(wish, context=None))
    if made is None or context is None:
        return made
    block = KV_BLOCK_TOKENS * made.kv_token_bytes * made.slots
    room = made.available - (made.needed - made.kv)
    largest = min(context, room // block * KV_BLOCK_TOKENS)
    return _fitting(replace(wish, context=largest)) if largest > made.context else made


def _fitting(wish: Wish) -> MemoryPlan | None:
    try:
        return wish.plan()
    except (DoesNotFitError, UsageError):
        return None


def _may_be_int8(wish: Wish) -> bool:
    return wish.kv == "f16" and wish.footprint.config.latent is None


def _fewer(slots: int) -> Iterator[int]:
    """Halves of `slots`, down to 1."""
    while slots > 1:
        slots //= 2
        yield slots


def _stronger(wish: Wish) -> list[Scheme]:
    """Schemes with fewer bytes than the wish's weights take, the most bits first."""
    smaller = [
        (weights.total, scheme)
        for scheme, weights in wish.footprint.by_scheme.items()
        if weights.total < wish.weights.total and scheme != wish.scheme
    ]
    return [scheme for _, scheme in sorted(smaller, reverse=True)]


def _boundless(limits: MemoryLimits) -> MemoryLimits:
    endless = tuple(replace(limit, capacity=1 << 60, available=1 << 60) for limit in limits.limits)
    return replace(limits, limits=endless)

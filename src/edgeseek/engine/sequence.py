"""One request's tokens, its block table, how far its KV is computed, its sampling state and stop rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgeseek.engine.grammar import Constraint
from edgeseek.engine.sampler import SamplingState
from edgeseek.engine.speculative import PromptLookup
from edgeseek.engine.stopping import StopRules


@dataclass(eq=False)
class Sequence:
    """`tokens` is prompt and output; positions [0, computed) have their KV in `block_table`."""

    id: int
    tokens: list[int]
    sampling: SamplingState
    stopping: StopRules
    prompt_tokens: int = field(init=False)
    block_table: list[int] = field(default_factory=list)
    computed: int = 0
    #: Prompt positions found computed at the first admission.
    cached_tokens: int = 0
    preemptions: int = 0
    #: Proposes tokens while it decodes; None where speculation is off.
    lookup: PromptLookup | None = None
    #: Holds its output to a grammar.
    constraint: Constraint | None = None
    #: Its prefix is shared with sequences of the same salt only.
    salt: bytes = b""
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    def __post_init__(self) -> None:
        self.prompt_tokens = len(self.tokens)

    @property
    def remaining(self) -> int:
        """Tokens whose KV is not computed yet; 1 while it decodes."""
        return len(self.tokens) - self.computed

    @property
    def output_tokens(self) -> int:
        """How many tokens were drawn."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def wanted(self) -> int:
        """Tokens it may still get before its length ends it."""
        return self.stopping.max_tokens - self.output_tokens

    def append(self, token: int) -> None:
        """Add a drawn token."""
        self.tokens.append(token)
        self.sampling.accept(token)

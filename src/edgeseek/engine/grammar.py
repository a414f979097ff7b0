"""Holds a sequence to a JSON schema: which tokens may come next, by llguidance.

White space between tokens is one space after a comma or a colon and none elsewhere, so that a model cannot
dawdle in it. Needs the extra `server`. Knows nothing of scheduling or HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from edgeseek.errors import MissingExtraError, RuntimeFailure, UsageError

if TYPE_CHECKING:
    from llguidance import LLMatcher
    from llguidance._lib import JsonCompileOptions

    from edgeseek.tokenizer import Tokenizer

#: A logit whose probability is 0 beside any other's, under all penalties and biases; the sampler takes an
#: infinite one for an overflow.
IMPOSSIBLE = np.float32(-1e30)
#: What any JSON object follows.
ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_SPACING: dict[str, Any] = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}


class Constraint:
    """The state of one sequence in a grammar."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def allow(self, logits: npt.NDArray[np.float32]) -> None:
        """Set the logits [vocab] of all tokens that cannot come next to `IMPOSSIBLE`, in place.

        Raises RuntimeFailure where the grammar grew too complex.
        """
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        allowed = np.unpackbits(bits, bitorder="little")[: len(logits)]
        logits[: len(allowed)][allowed == 0] = IMPOSSIBLE
        # Rows of the matrix beyond the vocabulary, which pad it.
        logits[len(allowed) :] = IMPOSSIBLE

    def accept(self, token: int) -> bool:
        """Go on with a token; whether the text is complete and nothing more may follow."""
        self._matcher.consume_token(token)
        self._check()
        return bool(self._matcher.is_stopped())

    def fresh(self) -> Constraint:
        """A copy, for another answer; only of one that has accepted nothing."""
        return Constraint(self._matcher.deep_copy())

    def _check(self) -> None:
        if self._matcher.is_error():
            raise RuntimeFailure(f"the grammar cannot be followed: {self._matcher.get_error()}")


class GrammarCompiler:
    """Makes constraints for one vocabulary; safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer, eos_token_ids: Sequence[int]) -> None:
        """`eos_token_ids` end a sequence; one at least. Raises MissingExtraError or UsageError."""
        try:
            from llguidance import LLTokenizer, TokenizerWrapper
        except ImportError as error:
            raise MissingExtraError("llguidance", "server", "JSON by a schema") from error
        if not eos_token_ids:
            raise UsageError("the model has no end-of-sequence token, which an answer in JSON needs")
        wrapper = TokenizerWrapper(_Vocabulary(tokenizer, eos_token_ids[0]))
        self._tokenizer = LLTokenizer(wrapper, eos_token=list(eos_token_ids))

    def json(self, schema: Mapping[str, Any] = ANY_OBJECT) -> Constraint:
        """Holds an answer to a JSON schema. Raises UsageError for one that is wrong or not supported."""
        from llguidance import LLMatcher

        try:
            grammar = LLMatcher.grammar_from_json_schema(
                json.dumps(schema), overrides=cast("JsonCompileOptions", _SPACING)
            )
        except ValueError as error:
            raise UsageError(f"the JSON schema cannot be followed: {error}") from error
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise UsageError(f"the JSON schema cannot be followed: {matcher.get_error().splitlines()[0]}")
        return Constraint(matcher)


class _Vocabulary:
    """The tokenizer as llguidance reads one."""

    def __init__(self, tokenizer: Tokenizer, eos_token_id: int) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = eos_token_id
        self.bos_token_id = tokenizer.bos_token_id
        count = tokenizer.vocab_size
        self.tokens = [tokenizer.token_bytes(token) for token in range(count)]
        self.special_token_ids = [token for token in range(count) if tokenizer.is_special(token)]

    def __call__(self, text: str | bytes) -> list[int]:
        """Ids of a text."""
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))

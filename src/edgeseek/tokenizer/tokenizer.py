"""Text to ids and ids to bytes, over Hugging Face `tokenizers`.

Owns the mapping between text, ids and bytes, and the rule of exactly one BOS. The wrapped tokenizer
is never changed after construction, so one instance serves any number of threads. Knows nothing
of checkpoints, chat messages or models.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import tokenizers

from edgeseek.errors import TokenizerError
from edgeseek.tokenizer.pieces import piece_rules
from edgeseek.tokenizer.stream import StreamDecoder


class Tokenizer:
    """A model's tokenizer. Build it with `from_json`; safe to share between threads."""

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        """Takes over `backend`, which the caller must not change afterwards.

        Whether a prompt begins with BOS is the post-processor's word alone; `bos_token_id` names
        the token for templates of models that add none. Raises TokenizerError for a decoder we
        cannot invert to bytes.
        """
        # A tokenizer.json may carry the truncation and padding of its training run.
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._rules = piece_rules(_state(backend.decoder))
        self._added = backend.get_added_tokens_decoder()
        self._bytes: dict[int, bytes] = {}
        self._prefix = _leading_special_ids(backend)
        self._bos_token_id = self._prefix[0] if bos_token_id is None and self._prefix else bos_token_id
        self._eos_token_ids = tuple(eos_token_ids)

    @classmethod
    def from_json(
        cls,
        data: bytes,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> Tokenizer:
        """Build from the bytes of a tokenizer.json; raises TokenizerError with the library's reason.

        Loads fastest from the compact form that `build_tokenizer_json` writes.
        """
        try:
            backend = tokenizers.Tokenizer.from_buffer(data)
        except Exception as error:  # the library raises bare Exception for malformed JSON
            raise TokenizerError(
                f"tokenizer.json cannot be loaded ({error}); convert the checkpoint again, or fetch a "
                f"complete tokenizer.json"
            ) from error
        return cls(backend, bos_token_id=bos_token_id, eos_token_ids=eos_token_ids)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id that has a token; a model may have more (padding) rows."""
        count = self._backend.get_vocab_size(with_added_tokens=True)
        if self._backend.id_to_token(count - 1) is not None and self._backend.id_to_token(count) is None:
            return count
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @property
    def adds_bos(self) -> bool:
        """Whether `encode_prompt` puts a BOS before a text that has none."""
        return bool(self._prefix)

    @property
    def bos_token_id(self) -> int | None:
        """The beginning-of-sequence token, whether or not prompts get one."""
        return self._bos_token_id

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a generation, as given; the first is the template's `eos_token`."""
        return self._eos_token_ids

    @property
    def bos_token(self) -> str:
        """Text of the BOS token for chat templates, "" if there is none."""
        return "" if self._bos_token_id is None else self.id_to_token(self._bos_token_id) or ""

    @property
    def eos_token(self) -> str:
        """Text of the first EOS token for chat templates, "" if there is none."""
        return self.id_to_token(self._eos_token_ids[0]) or "" if self._eos_token_ids else ""

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Ids of `text`, without BOS or EOS.

        With `special`, spellings of control tokens ("<|im_end|>") become those tokens, as templates
        need; without it they are ordinary text, for input that must not act as control. Added
        tokens that are not control tokens are recognised either way. Raises TokenizerError for lone
        surrogates.
        """
        try:
            if special or not self._control_tokens:
                return list(self._backend.encode(text, add_special_tokens=False).ids)
            return self._encode_without_control(text)
        except (TypeError, UnicodeEncodeError) as error:  # the library's words for it say less
            surrogate = next((at for at, code in enumerate(text) if "\ud800" <= code <= "\udfff"), None)
            if surrogate is None:
                raise
            raise TokenizerError(
                f"the text has a lone surrogate at character {surrogate}; pass valid Unicode"
            ) from error

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a whole prompt: exactly one BOS if the model wants one, even if `text` spells it."""
        ids = self.encode(text)
        count = len(self._prefix)
        return ids if ids[:count] == self._prefix else self._prefix + ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = False, continues: bool = False) -> str:
        """UTF-8 text of the joined token bytes, malformed parts as U+FFFD.

        SentencePiece vocabularies spell the space that they put before a text's first word; it is
        removed here, so that decode(encode(text)) == text, unless the ids continue an earlier text.
        """
        if skip_special:
            ids = [token_id for token_id in ids if not self.is_special(token_id)]
        text = b"".join(map(self.token_bytes, ids)).decode("utf-8", "replace")
        if continues:
            return text
        spaces = len(text) - len(text.lstrip(" "))
        return text[min(spaces, self._rules.strip_left) :]

    def stream(self, *, continues: bool = True) -> StreamDecoder:
        """A decoder for generated tokens; without `continues` its text equals `decode`'s."""
        return StreamDecoder(self.token_bytes, strip_left=0 if continues else self._rules.strip_left)

    def token_bytes(self, token_id: int) -> bytes:
        """Raw bytes of a token: added tokens are their literal text, ids without a token are empty.

        Raises TokenizerError for a negative id.
        """
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._token_bytes(token_id)
        return known

    def token_to_id(self, token: str) -> int | None:
        """Id of a token by its spelling in the vocabulary, None if there is none."""
        found: int | None = self._backend.token_to_id(token)
        return found

    def id_to_token(self, token_id: int) -> str | None:
        """Spelling of a token in the vocabulary ("Ġhello"), None if the id has none."""
        if token_id < 0:
            raise TokenizerError(f"token id {token_id} is negative")
        found: str | None = self._backend.id_to_token(token_id)
        return found

    def is_special(self, token_id: int) -> bool:
        """Whether the token controls the model and is no text for a reader (BOS, <|im_end|>)."""
        added = self._added.get(token_id)
        return added is not None and bool(added.special)

    def _token_bytes(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        if added is not None:
            return str(added.content).encode()
        piece = self.id_to_token(token_id)
        return b"" if piece is None else self._rules.to_bytes(piece)

    @cached_property
    def _control_tokens(self) -> bool:
        return any(token.special for token in self._added.values())

    @cached_property
    def _plain_added(self) -> tuple[re.Pattern[str] | None, dict[str, int]]:
        """A pattern of the added tokens that are no control tokens, longest first, and their ids."""
        ids = {token.content: token_id for token_id, token in self._added.items() if not token.special}
        spellings = sorted(ids, key=len, reverse=True)
        return (re.compile("|".join(map(re.escape, spellings))) if spellings else None), ids

    def _encode_without_control(self, text: str) -> list[int]:
        pattern, plain = self._plain_added
        if pattern is None:
            return self._encode_ordinary(text)
        ids: list[int] = []
        end = 0
        for found in pattern.finditer(text):
            ids += self._encode_ordinary(text[end : found.start()])
            ids.append(plain[found[0]])
            end = found.end()
        return ids + self._encode_ordinary(text[end:])

    def _encode_ordinary(self, text: str) -> list[int]:
        """The pipeline of the library without its search for added tokens."""
        backend = self._backend
        if not text:
            return []
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        if backend.pre_tokenizer is None:
            pieces = [text]
        else:
            pieces = [piece for piece, _ in backend.pre_tokenizer.pre_tokenize_str(text)]
        model = backend.model
        return [token.id for piece in pieces for token in model.tokenize(piece)]


def _state(component: Any) -> dict[str, Any] | None:
    """The JSON of a `tokenizers` component; None stays None."""
    if component is None:
        return None
    state: dict[str, Any] = json.loads(component.__getstate__())
    return state


def _leading_special_ids(backend: tokenizers.Tokenizer) -> list[int]:
    """Ids that the post-processor puts before a text."""
    encoding = backend.encode("a", add_special_tokens=True)
    ids: list[int] = []
    for token_id, special in zip(encoding.ids, encoding.special_tokens_mask, strict=True):
        if not special:
            break
        ids.append(token_id)
    return ids

"""Tokenizers that are built once."""

from __future__ import annotations

import pytest

from edgeseek.tokenizer import Tokenizer
from tests.unit.tokenizer.vocabularies import r1, sentencepiece, tokenizer_of


@pytest.fixture(scope="session")
def r1_tokenizer() -> Tokenizer:
    """DeepSeek-R1-Distill-Qwen, true ids, reduced to what the tests touch."""
    return tokenizer_of(r1()[0])


@pytest.fixture(scope="session")
def spm_tokenizer() -> Tokenizer:
    """A SentencePiece vocabulary of 700 pieces with byte fallback."""
    return tokenizer_of(sentencepiece()[0])

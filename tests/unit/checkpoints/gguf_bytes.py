"""Builds GGUF files byte by byte, so that a test can make any of them wrong."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def text(value: str | bytes) -> bytes:
    """A GGUF string: its length and its bytes."""
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry; `payload` is the value as stored."""
    return text(key) + struct.pack("<I", kind) + payload


def array(element: int, length: int, payload: bytes) -> bytes:
    """The payload of an array entry."""
    return struct.pack("<IQ", element, length) + payload


def record(name: str | bytes, sizes: list[int], kind: int, offset: int) -> bytes:
    """A tensor record; `sizes` with the fastest axis first."""
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


@dataclass
class Gguf:
    """The parts of a file; counts are those of the parts unless set."""

    entries: list[bytes] = field(default_factory=list)
    records: list[bytes] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    tensor_count: int | None = None
    entry_count: int | None = None

    def to_bytes(self) -> bytes:
        """The file."""
        tensors = len(self.records) if self.tensor_count is None else self.tensor_count
        entries = len(self.entries) if self.entry_count is None else self.entry_count
        head = self.magic + struct.pack("<IQQ", self.version, tensors, entries)
        head += b"".join(self.entries) + b"".join(self.records)
        padding = -len(head) % self.alignment if self.records else 0
        return head + bytes(padding) + self.data


def small() -> Gguf:
    """A sound file of under 1 KB: every kind of value, three tensors."""
    return Gguf(
        entries=[
            entry("general.architecture", STRING, text("llama")),
            entry("llama.block_count", U32, struct.pack("<I", 1)),
            entry("llama.rope.freq_base", F32, struct.pack("<f", 10000.0)),
            entry("test.flag", BOOL, b"\1"),
            entry("test.long", U64, struct.pack("<Q", 2**63 + 1)),
            entry("tokenizer.ggml.tokens", ARRAY, array(STRING, 3, text("a") + text("é") + text(""))),
            entry("tokenizer.ggml.token_type", ARRAY, array(I32, 3, struct.pack("<3i", 1, 3, -1))),
        ],
        records=[
            record("norm.weight", [8], 0, 0),
            record("mat.weight", [32, 3], 8, 32),
            record("half.weight", [4, 2], 1, 160),
        ],
        data=bytes(range(256))[: 160 + 16],
    )

"""Stored tensor types: how many values a block holds and how many bytes it takes.

Owns the sizes and the list of types that can be converted. Knows nothing of what the bytes mean; that is
`quantize`. GGUF numbers and block sizes follow ggml's `ggml.h`, safetensors names and sizes its format page
(https://github.com/huggingface/safetensors#format).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Types whose rows `LazyTensor.read_rows` delivers: name -> (values per block, bytes per block).
BLOCKS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "F32": (1, 4),
        "F16": (1, 2),
        "BF16": (1, 2),
        "Q4_0": (32, 18),
        "Q4_1": (32, 20),
        "Q5_0": (32, 22),
        "Q5_1": (32, 24),
        "Q8_0": (32, 34),
        "Q4_K": (256, 144),
        "Q5_K": (256, 176),
        "Q6_K": (256, 210),
    }
)

#: Types of a GGUF that we read or skip, by ggml's number.
GGUF_TYPES: Mapping[int, str] = MappingProxyType(
    {
        0: "F32",
        1: "F16",
        2: "Q4_0",
        3: "Q4_1",
        6: "Q5_0",
        7: "Q5_1",
        8: "Q8_0",
        12: "Q4_K",
        13: "Q5_K",
        14: "Q6_K",
        24: "I8",
        25: "I16",
        26: "I32",
        27: "I64",
        28: "F64",
        30: "BF16",
    }
)

#: Types that ggml knows and we do not read, by its number: only their names, for the error.
GGUF_UNREAD_TYPES: Mapping[int, str] = MappingProxyType(
    {
        9: "Q8_1",
        10: "Q2_K",
        11: "Q3_K",
        15: "Q8_K",
        16: "IQ2_XXS",
        17: "IQ2_XS",
        18: "IQ3_XXS",
        19: "IQ1_S",
        20: "IQ4_NL",
        21: "IQ3_S",
        22: "IQ2_S",
        23: "IQ4_XS",
        29: "IQ1_M",
        34: "TQ1_0",
        35: "TQ2_0",
        39: "MXFP4",
        40: "NVFP4",
        41: "Q1_0",
    }
)

#: Bits per value of the plain types, as safetensors names them; GGUF's plain types are among them.
PLAIN_BITS: Mapping[str, int] = MappingProxyType(
    {
        "BOOL": 8,
        "U8": 8,
        "I8": 8,
        "F8_E4M3": 8,
        "F8_E5M2": 8,
        "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8,
        "F8_E5M2FNUZ": 8,
        "F4": 4,
        "F6_E2M3": 6,
        "F6_E3M2": 6,
        "U16": 16,
        "I16": 16,
        "F16": 16,
        "BF16": 16,
        "U32": 32,
        "I32": 32,
        "F32": 32,
        "U64": 64,
        "I64": 64,
        "F64": 64,
        "C64": 64,
    }
)


def stored_bytes(dtype: str, rows: int, columns: int) -> int | None:
    """Bytes that rows * columns values of `dtype` take, or None if we do not know the type.

    Raises ValueError when the values do not fill whole blocks (of a row) or whole bytes.
    """
    if dtype in BLOCKS:
        values, size = BLOCKS[dtype]
        if columns % values:
            raise ValueError(f"rows of {columns} values do not fill {dtype} blocks of {values}")
        return rows * (columns // values) * size
    if dtype not in PLAIN_BITS:
        return None
    bits = rows * columns * PLAIN_BITS[dtype]
    if bits % 8:
        raise ValueError(f"{rows * columns} values of {dtype} do not fill whole bytes")
    return bits // 8

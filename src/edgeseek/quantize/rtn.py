"""Plain round-to-nearest from float rows, and the moves between float types.

Takes nothing but the weights. Knows nothing of files or models.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from edgeseek.quantize.packing import Blocks, Bytes, Floats, Plane, Words, chunk_words
from edgeseek.quantize.schemes import GROUP, SCHEMES, Scheme

#: Bytes per value of the float types as checkpoints deliver them: F8_E4M3 scaled, as float32.
FLOAT_BYTES: Mapping[str, int] = MappingProxyType({"F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 4})

_HALF_MAX = np.float32(65504.0)
_NO_CODES: Words = np.empty((0, 0, 0), np.uint32)


class RoundingError(ValueError):
    """Values that the scheme cannot hold: not finite, or too large for a half."""


def floats(dtype: str, raw: Bytes) -> Floats:
    """Rows of F32, F16, BF16 or F8_E4M3 (see `FLOAT_BYTES`) as float32, exactly."""
    raw = np.ascontiguousarray(raw)
    if dtype in ("F32", "F8_E4M3"):
        return raw.view("<f4")
    if dtype == "F16":
        return raw.view("<f2").astype(np.float32)
    # A BF16 is the upper half of the float32 of the same value.
    return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def float_blocks(dtype: str, raw: Bytes, scheme: Scheme) -> Blocks:
    """Stored F32, F16 or BF16 rows as blocks of `scheme` f32 or f16.

    Only F16 to f16 and anything to f32 keeps every value. Raises RoundingError where a value is not
    finite or, for f16, beyond 65504.
    """
    bits: Plane
    if scheme == "f16" and dtype == "F16":
        bits = np.ascontiguousarray(raw).view("<u2")
        # All exponent bits set means infinite or not a number.
        if np.any((bits & 0x7C00) == 0x7C00):
            raise RoundingError("it holds values that are not finite")
        return Blocks(scheme, {"value": _rows_last(bits)}, _NO_CODES)
    return from_floats(floats(dtype, raw), scheme)


def from_floats(rows: Floats, scheme: Scheme) -> Blocks:
    """Round float rows [rows, columns] to `scheme` f32, f16, q8 or q4.

    Columns are padded to the scheme's block with zero codes. Raises RoundingError as `float_blocks`.
    """
    if scheme == "f32":
        _check_finite(rows)
        return Blocks(scheme, {"value": _rows_last(rows.view("<u4"))}, _NO_CODES)
    if scheme == "f16":
        _check_finite(rows)
        with np.errstate(over="ignore"):
            halves = rows.astype(np.float16)
        if not np.isfinite(halves).all():
            raise RoundingError(f"it holds {np.abs(rows).max():g}, and a half ends at 65504")
        return Blocks(scheme, {"value": _rows_last(halves.view("<u2"))}, _NO_CODES)
    if scheme in ("q8", "q4"):
        return _round_groups(rows, scheme)
    raise ValueError(f"plain rounding does not produce {scheme!r}")


def _round_groups(rows: Floats, scheme: Scheme) -> Blocks:
    """Symmetric rounding with one scale per row and group of 32 columns.

    q8: d = max|x| / 127. q4: d = x* / −8 with x* the value of largest magnitude, so that the one code
    without a mirror image, 0, falls on it. Codes are rounded with d as it is stored, a half.
    """
    columns = rows.shape[1]
    padded = -columns % GROUP
    if padded:
        rows = np.pad(rows, ((0, 0), (0, padded)))
    groups = rows.reshape(len(rows), -1, GROUP)
    high, low = groups.max(axis=2, keepdims=True), groups.min(axis=2, keepdims=True)
    if scheme == "q8":
        exact = np.maximum(high, -low) / np.float32(127)
        first, last, zero = -127, 127, 0
    else:
        exact = np.where(high >= -low, high, low) / np.float32(-8)
        first, last, zero = -8, 7, 8
    if not np.isfinite(exact).all():
        raise RoundingError("it holds values that are not finite")
    scale = np.clip(exact, -_HALF_MAX, _HALF_MAX).astype(np.float16)
    stored = scale.astype(np.float32)
    inverse = np.divide(1, stored, out=np.zeros_like(stored), where=stored != 0)
    codes = np.rint(groups * inverse)
    np.clip(codes, first, last, out=codes)
    codes += np.float32(zero)
    packed = codes.astype(np.int8).view(np.uint8).reshape(len(rows), -1)
    packed[:, columns:] = 0
    bits = _rows_last(scale.reshape(len(rows), -1).view("<u2"))
    return Blocks(scheme, {"d": bits}, chunk_words(packed, SCHEMES[scheme].block))


def _check_finite(rows: Floats) -> None:
    if not np.isfinite(rows).all():
        raise RoundingError("it holds values that are not finite")


def _rows_last(bits: Plane) -> Plane:
    """[rows, n] as [1, n, rows]."""
    return np.ascontiguousarray(bits.T)[None]

"""Rounds float rows so that the squared error, weighted by column, is least.

With `importance` = E[x²] of a linear layer's inputs the weighted error of a row is the expected squared
error of its output if inputs are uncorrelated: the diagonal of GPTQ's Hessian (arXiv 2210.17323). Takes
weights and importance, nothing else; works for every scheme that GGUF has blocks for.
"""

from __future__ import annotations

import numpy as np

from edgeseek.quantize.group_fit import Codes, fit_scale, fit_scale_and_offset, nearest
from edgeseek.quantize.packing import Blocks, Floats, Plane, Words
from edgeseek.quantize.rtn import RoundingError
from edgeseek.quantize.schemes import SCHEMES, Scheme
from edgeseek.quantize.two_level import TwoLevel, fit_signed, fit_with_offsets, half

#: Columns without any importance still count for this share of the mean, so that no group is left unfitted.
_LEAST_SHARE = np.float32(1e-6)

#: The largest half, which an offset has to be.
_REACH = np.float32(65504)


def round_to_least_error(rows: Floats, scheme: Scheme, importance: Floats | None = None) -> Blocks:
    """Round `rows` [rows, columns] to `scheme` q8, q4, q4z, q5, q5z, q4k, q5k or q6k.

    `importance` [columns] weighs the squared errors; None weighs all alike. Columns are padded to the
    scheme's block with zero codes. Raises RoundingError for values that are not finite or beyond
    65504, ValueError for another scheme or an importance that is no weight.
    """
    spec = SCHEMES[scheme]
    if not spec.code_bits:
        raise ValueError(f"{scheme} has no codes to choose")
    if not np.isfinite(rows).all():
        raise RoundingError("it holds values that are not finite")
    if np.abs(rows).max(initial=0) > _REACH:
        raise RoundingError(f"it holds {np.abs(rows).max():g}, and scales and offsets end at 65504")
    columns = rows.shape[1]
    groups = 16 if scheme == "q6k" else spec.groups
    values = _by_column(rows, spec.block, groups)
    weights = None if importance is None else _weights(importance, columns, spec.block, groups)
    if weights is None and columns % spec.block:
        weights = _weights(np.ones(columns, np.float32), columns, spec.block, groups)
    scales, codes = _fit(values, weights, scheme, spec.code_bits)
    flat = codes.reshape(spec.block, *codes.shape[2:])
    if rest := columns % spec.block:
        flat[rest:, -1] = 0
    return Blocks(scheme, scales, _words(flat))


def _fit(
    values: Floats, weights: Floats | None, scheme: Scheme, bits: int
) -> tuple[dict[str, Plane], Floats]:
    """The scales as `Blocks` holds them, and codes [groups, columns, blocks, rows]."""
    if scheme == "q6k":
        fit = fit_signed(values, weights)
        scales = {"d": _bits(fit.d[None]), "sc": fit.scale.astype(np.int8).view(np.uint8)}
        return scales, fit.codes + np.float32(32)
    if scheme in ("q4k", "q5k"):
        return _with_offsets(fit_with_offsets(values, weights, (1 << bits) - 1))
    if scheme in ("q4z", "q5z"):
        codes = Codes(0, (1 << bits) - 1)
        scale, offset = fit_scale_and_offset(values, weights, codes.high, never_above=False)
        d, m = half(scale), half(offset)
        return {"d": _bits(d), "m": _bits(m)}, nearest(values - m[:, None], d, codes)
    symmetric = Codes(-127, 127) if scheme == "q8" else Codes(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    d = half(fit_scale(values, weights, symmetric))
    codes_found = nearest(values, d, symmetric)
    if scheme != "q8":
        codes_found -= np.float32(symmetric.low)
    return {"d": _bits(d)}, codes_found


def _with_offsets(fit: TwoLevel) -> tuple[dict[str, Plane], Floats]:
    scales = {
        "d": _bits(fit.d[None]),
        "dmin": _bits(fit.dmin[None]),
        "sc": fit.scale.astype(np.uint8),
        "mn": fit.low.astype(np.uint8),
    }
    return scales, fit.codes


def _by_column(rows: Floats, block: int, groups: int) -> Floats:
    """[rows, columns] as [groups, block / groups, blocks, rows], padded with zeros."""
    count, columns = rows.shape
    padding = -columns % block
    if padding:
        rows = np.pad(rows, ((0, 0), (0, padding)))
    turned = rows.reshape(count, -1, block).transpose(2, 1, 0)
    result: Floats = np.ascontiguousarray(turned, np.float32)
    return result.reshape(groups, block // groups, *result.shape[1:])


def _weights(importance: Floats, columns: int, block: int, groups: int) -> Floats:
    """Importance as [groups, block / groups, blocks, 1] with mean 1; padding columns weigh nothing."""
    found = np.asarray(importance, np.float64)
    if found.shape != (columns,) or not np.isfinite(found).all() or (found < 0).any():
        raise ValueError(
            f"importance must be {columns} finite numbers of 0 or more, found shape {found.shape}"
        )
    mean = float(found.mean())
    scaled = (found / mean if mean > 0 else np.ones_like(found)).astype(np.float32)
    np.maximum(scaled, _LEAST_SHARE, out=scaled)
    return _by_column(scaled[None], block, groups)


def _bits(halves: Floats) -> Plane:
    return halves.astype(np.float16).view(np.uint16)


def _words(codes: Floats) -> Words:
    """Codes [columns, blocks, rows] as chunks of four columns, lowest byte first."""
    narrow = codes.astype(np.int16).astype(np.uint8).astype(np.uint32)
    fours = narrow.reshape(-1, 4, *narrow.shape[1:])
    words: Words = fours[:, 0].copy()
    for place in range(1, 4):
        words |= fours[:, place] << np.uint32(8 * place)
    return words

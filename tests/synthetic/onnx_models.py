"""Exported tiny models on ONNX Runtime, fed as plain Python feeds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

Arrays = dict[str, npt.NDArray[Any]]


def session_of(graph: Path | bytes) -> Any:
    """An inference session on the CPU; the test is skipped where onnxruntime is not installed."""
    runtime = pytest.importorskip("onnxruntime")
    return runtime.InferenceSession(
        graph if isinstance(graph, bytes) else str(graph), providers=["CPUExecutionProvider"]
    )


def empty_past(session: Any, batch: int = 1) -> Arrays:
    """A past of no tokens for every layer."""
    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    return {
        entry.name: np.zeros((batch, entry.shape[1], 0, entry.shape[3]), types[entry.type])
        for entry in session.get_inputs()
        if entry.name.startswith("past_key_values")
    }


def step(
    session: Any, ids: npt.NDArray[np.int64], mask: npt.NDArray[np.int64], past: Mapping[str, Any]
) -> tuple[npt.NDArray[np.float32], Arrays]:
    """Logits [batch, tokens, vocab] of new tokens, and the past of the next step."""
    logits, *present = session.run(None, {"input_ids": ids, "attention_mask": mask, **past})
    names = [entry.name.replace("present", "past_key_values") for entry in session.get_outputs()[1:]]
    return logits, dict(zip(names, present, strict=True))


def logits_in_chunks(session: Any, ids: Sequence[int], chunks: Sequence[int]) -> npt.NDArray[np.float32]:
    """Logits [len(ids), vocab] of one sequence that is fed in chunks."""
    past, done, rows = empty_past(session), 0, []
    for size in chunks:
        new = np.array([ids[done : done + size]], np.int64)
        done += size
        logits, past = step(session, new, np.ones((1, done), np.int64), past)
        rows.append(logits[0])
    return np.concatenate(rows)

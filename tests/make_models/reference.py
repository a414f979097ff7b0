"""Compute with transformers what the tiny models must give, into tests/fixtures/tiny_logits.

    python -m tests.make_models.reference [CASE...] [--output FOLDER]

Needs the extra `reference` (torch, transformers). CPU, float32, eager attention. Each case of
`tiny.CASES` (all, or those named) has a file CASE.npz with `ids` [tokens], `logits` [tokens, vocab]
float32, and `weights`, the sha256 of the tensors the numbers belong to.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.make_models.tiny import CASES, TinyModel, prompt_ids, tensors, write

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "tiny_logits"
#: Long enough to leave the first KV block (32 positions) and a sliding window of 8 many times.
PROMPT_TOKENS = 44


def weights_digest(model: TinyModel) -> str:
    """sha256 hex over names and bytes of the model's tensors, in name order."""
    digest = hashlib.sha256()
    for name, value in sorted(tensors(model).items()):
        digest.update(name.encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


def load_reference(folder: Path) -> Any:
    """The folder's model in transformers: CPU, float32, eager attention, evaluation mode.

    Raises ValueError where a tensor was not used or not found, since transformers would go on without it.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model, report = AutoModelForCausalLM.from_pretrained(
        str(folder),
        dtype=torch.float32,
        attn_implementation="eager",
        local_files_only=True,
        output_loading_info=True,
    )
    problems = {kind: names for kind, names in report.items() if names}
    if problems:
        raise ValueError(f"{folder} does not load completely: {problems}")
    return model.eval()


def reference_logits(model: Any, ids: list[int]) -> npt.NDArray[np.float32]:
    """Logits [len(ids), vocab] of one forward pass of `load_reference`'s model over `ids`."""
    import torch

    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    return np.asarray(logits.float().numpy(), dtype=np.float32)


def main() -> None:
    """Recompute the cases that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="names of tiny models; none for all")
    parser.add_argument("--output", type=Path, default=FIXTURES)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.cases or CASES:
        ids = prompt_ids(CASES[name], PROMPT_TOKENS)
        with tempfile.TemporaryDirectory() as scratch:
            logits = reference_logits(load_reference(write(CASES[name], Path(scratch))), ids)
        np.savez_compressed(
            options.output / f"{name}.npz",
            allow_pickle=False,
            ids=np.asarray(ids, dtype=np.int32),
            logits=logits,
            weights=np.asarray(weights_digest(CASES[name])),
        )


if __name__ == "__main__":
    main()

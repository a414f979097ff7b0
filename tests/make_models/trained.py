"""Compute with transformers what the trained tiny models must give, into tests/fixtures/trained.*.

    python -m tests.make_models.trained FOLDER [MODEL...]

FOLDER holds the folders of MODELS (Hugging Face folders with reference.json and logits.npy) and
`eval.txt`. Their weights are too large to be checked in; what is kept here is enough to test with where the
folder is present: some rows of reference logits, greedy continuations, and the perplexity of eval.txt for
the stored weights and for what each quantization scheme makes of them, all from transformers.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from edgeseek.quantize.schemes import Scheme
from tests.make_models.dequantized import dequantized
from tests.make_models.reference import load_reference
from tests.synthetic.models import package_folder

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
MODELS = ("tiny-llama", "tiny-qwen2", "tiny-deepseek-v2")
SCHEMES: tuple[Scheme, ...] = ("q8", "q4")
WINDOW = 256
#: Rows of the 64 reference logits that are kept.
KEPT_ROWS = (0, 1, 2, 7, 15, 31, 32, 47, 63)
#: A greedy token counts only up to the first step at which the two best logits are closer than this.
UNDECIDED = 0.02


def load_dequantized(folder: Path, scheme: Scheme) -> Any:
    """The folder's model in transformers with the weights that `scheme` makes of them."""
    with tempfile.TemporaryDirectory() as scratch:
        with package_folder(folder, Path(scratch) / "package", scheme) as package:
            weights = dequantized(package)
        rounded = Path(scratch) / "rounded"
        shutil.copytree(folder, rounded)
        save_file(
            {name: np.ascontiguousarray(value) for name, value in weights.items()},
            rounded / "model.safetensors",
            metadata={"format": "pt"},
        )
        return load_reference(rounded)


def perplexity(model: Any, ids: Sequence[int], batch: int = 8) -> float:
    """exp of the mean negative log-likelihood over whole windows, the first token of each unscored."""
    import torch

    count = len(ids) // WINDOW
    windows = torch.tensor(ids[: count * WINDOW]).reshape(count, WINDOW)
    total = 0.0
    with torch.no_grad():
        for first in range(0, count, batch):
            rows = windows[first : first + batch]
            logs = torch.log_softmax(model(rows).logits[:, :-1].double(), dim=-1)
            total -= float(logs.gather(-1, rows[:, 1:, None]).sum())
    return math.exp(total / (count * (WINDOW - 1)))


def greedy_records(reference: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Prompts and their greedy ids, as far as the reference was decided."""
    records = []
    for prompt in reference["prompts"]:
        gaps = prompt["greedy_gaps"]
        decided = next((i for i, gap in enumerate(gaps) if gap < UNDECIDED), len(gaps))
        if decided:
            records.append({"prompt_ids": prompt["prompt_ids"], "ids": prompt["greedy_ids"][:decided]})
    return records


def main() -> None:
    """Recompute for the models that are named, or all."""
    folder, names = Path(sys.argv[1]), sys.argv[2:] or MODELS
    facts: dict[str, Any] = json.loads((FIXTURES / "trained.json").read_text(encoding="utf-8"))
    with np.load(FIXTURES / "trained.npz") as kept:
        arrays: dict[str, npt.NDArray[np.float32]] = dict(kept)
    for name in names:
        reference = json.loads((folder / name / "reference.json").read_text(encoding="utf-8"))
        tokenizer = Tokenizer.from_file(str(folder / name / "tokenizer.json"))
        ids = tokenizer.encode(
            (folder / "eval.txt").read_text(encoding="utf-8"), add_special_tokens=False
        ).ids
        found = {scheme: perplexity(load_dequantized(folder / name, scheme), ids) for scheme in SCHEMES}
        facts[name] = {
            "window_ids": reference["logits_window"]["ids"],
            "greedy": greedy_records(reference),
            "eval_tokens": len(ids),
            "perplexity": {"f32": reference["eval"]["ppl"], **found},
        }
        arrays[name] = np.load(folder / name / "logits.npy")[list(KEPT_ROWS)]
    (FIXTURES / "trained.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
    np.savez_compressed(FIXTURES / "trained.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()

"""Drawing a token from logits in the core, the same for every backend whose logits lie in memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgeseek import _core
from edgeseek.errors import RuntimeFailure
from edgeseek.runtime.backend import Sample, SampleRow


def draw(logits: npt.NDArray[np.float32], row: SampleRow) -> Sample:
    """Draw from one row of logits [vocab]. Raises RuntimeFailure for logits that are no numbers."""
    try:
        token, logprob, top_ids, top_logprobs = _core.sample(
            logits,
            temperature=row.temperature,
            top_k=row.top_k,
            top_p=row.top_p,
            min_p=row.min_p,
            repetition_penalty=row.repetition_penalty,
            presence_penalty=row.presence_penalty,
            frequency_penalty=row.frequency_penalty,
            seen_ids=row.seen_ids,
            output_ids=row.output_ids,
            output_counts=row.output_counts,
            bias_ids=row.bias_ids,
            bias_values=row.bias_values,
            seed=row.seed,
            position=row.position,
            top_logprobs=row.top_logprobs,
        )
    except ValueError as error:
        raise RuntimeFailure(f"sampling failed: {error}") from error
    return Sample(token, logprob, tuple(top_ids), tuple(top_logprobs))

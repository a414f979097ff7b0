"""Turns requests into steps: sequences, scheduling, KV blocks, sampling policy, stop rules, the step loop."""

from edgeseek.engine.engine import Engine
from edgeseek.engine.outputs import Chunk, Completion, FinishReason, Timings, TokenLogprob
from edgeseek.engine.params import SamplingParams
from edgeseek.engine.request import Generation

__all__ = [
    "Chunk",
    "Completion",
    "Engine",
    "FinishReason",
    "Generation",
    "SamplingParams",
    "Timings",
    "TokenLogprob",
]

"""Runs a model on text to measure it."""

from edgeseek.calibration.perplexity import PerplexityResult, perplexity

__all__ = ["PerplexityResult", "perplexity"]

"""What the `bench` command measures: the machine's limits, the model's speed against them, starts, memory.

Above llm, below cli. Every figure comes from the backend that serves answers, on the engine's own thread.
"""

from __future__ import annotations

from edgeseek.bench.report import Report, Row
from edgeseek.bench.suite import Plan, run_suite
from edgeseek.doctor.device import Device, recognise

__all__ = ["Device", "Plan", "Report", "Row", "recognise", "run_suite"]

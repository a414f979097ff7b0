"""What this machine has and what it means for running models: the checks of the `doctor` command.

Reads files below `settings.proc_root` and `settings.sys_root` and asks what `Probes` holds; changes
nothing, loads no model. Knows nothing of runtime, engine or command line.
"""

from __future__ import annotations

from edgeseek.doctor.device import Device, recognise
from edgeseek.doctor.examination import Examination, examine
from edgeseek.doctor.finding import Finding, Status
from edgeseek.doctor.probes import Probes

__all__ = ["Device", "Examination", "Finding", "Probes", "Status", "examine", "recognise"]

"""On the real kernel: a limited group holds what was planned, refuses less, survives a greedy neighbour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from edgeseek.memory.alternatives import Wish
from edgeseek.memory.footprint import footprint_of
from edgeseek.memory.limits import MemoryLimit, MemoryLimits
from edgeseek.memory.planner import MemoryPlan
from tests.make_models.tiny import TinyModel, write
from tests.memory_groups import LimitedGroup, evict, limited_group
from tests.synthetic.models import package_folder

pytestmark = pytest.mark.memory_group

MIB = 1 << 20
WORKER = str(Path(__file__).with_name("limited_worker.py"))
IMPORTER = str(Path(__file__).with_name("memory_worker.py"))
#: Fewer of both where the processor is emulated, see tools/cgroup2_machine.py.
REQUESTS = int(os.environ.get("EDGESEEK_TEST_REQUESTS", "200"))
TOKENS = int(os.environ.get("EDGESEEK_TEST_TOKENS", "600"))
PATIENCE_S = 60 if TOKENS == 600 else 1200
#: 40 million weights, untied.
MODEL = TinyModel(
    "middle", "llama", 83, 512, 1536, 8, 8, 64, layers=12, extra={"max_position_embeddings": 4096}
)
OPTIONS = {"context": 256, "slots": 8, "threads": 2}
GUARDED = {"context": 1024, "slots": 3, "threads": 2}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("limited")
    package_folder(write(MODEL, folder / "checkpoint"), folder / "package", "q8").close()
    return folder / "package"


@pytest.fixture
def group() -> Iterator[LimitedGroup]:
    with limited_group() as group:
        yield group


def planned(package: Path, options: Mapping[str, Any]) -> MemoryPlan:
    """The plan on a machine without limits."""
    endless = MemoryLimits((MemoryLimit("MemAvailable", 1 << 40, 1 << 40),))
    return Wish(footprint_of(package), endless, **options).plan()


def answered(group: LimitedGroup, package: Path, requests: int) -> dict[str, Any]:
    evict(package)
    command = [sys.executable, WORKER, "full", str(package), json.dumps(OPTIONS), str(requests)]
    process = group.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=240 + 4 * PATIENCE_S)
    assert process.returncode == 0, f"exit code {process.returncode}: {err}"
    report: dict[str, Any] = json.loads(out)
    return report


def test_the_plan_and_5_percent_hold_200_requests_at_full_context(
    group: LimitedGroup, package: Path, record_property: Callable[[str, object], None]
) -> None:
    limit = planned(package, OPTIONS).needed * 105 // 100
    group.limit(limit)
    report = answered(group, package, REQUESTS)
    record_property("limit_hits", group.limit_hits)
    print(f"limit {limit / MIB:.1f} MiB, highest {group.highest / MIB:.1f} MiB, hits {group.limit_hits}")
    assert report["answered"] == REQUESTS
    assert group.oom_kills == 0


def test_the_plan_less_20_percent_is_refused_before_loading(group: LimitedGroup, package: Path) -> None:
    needed = planned(package, OPTIONS).needed
    group.limit(needed * 80 // 100)
    report = answered(group, package, 8)
    assert "by cgroup memory." in report["refused"]
    assert report["needed"] == needed
    assert report["available"] < needed
    assert group.oom_kills == 0


def test_an_import_stays_within_its_own_prediction(
    group: LimitedGroup, package: Path, tmp_path: Path
) -> None:
    source = package.parent / "checkpoint"
    peak = footprint_of(source, scheme="q4").conversion
    assert peak is not None
    group.limit(peak.needed)
    evict(source)
    command = [sys.executable, IMPORTER, "import", str(source), str(tmp_path), "q4"]
    process = group.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=120 + PATIENCE_S)
    assert process.returncode == 0, f"exit code {process.returncode}: {err}"
    assert json.loads(out)["VmHWM"] <= peak.needed
    assert group.oom_kills == 0


def test_a_greedy_neighbour_is_survived_step_by_step(group: LimitedGroup, package: Path) -> None:
    made = planned(package, GUARDED)
    spare = 64 * MIB
    group.limit(made.needed + spare)
    evict(package)
    command = [sys.executable, WORKER, "guarded", str(package), json.dumps(GUARDED), str(TOKENS)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = group.start(command, stderr=subprocess.PIPE, **pipes)
    eater = None
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        first = server.stdout.readline()
        assert first, server.communicate(timeout=PATIENCE_S)[1]
        ready = json.loads(first)
        assert ready["watched"]
        # What is private and a few pages of files stay; the weights must be read again and again.
        size = group_limit_left(group, made, spare)
        eater = group.start([sys.executable, WORKER, "eat", str(size)], **pipes)
        assert eater.stdin is not None
        steps: list[str] = []
        beside = refused = 0
        undone: list[str] = []
        report: dict[str, Any] = {}
        full = threading.Timer(PATIENCE_S / 2, eater.kill)
        full.start()
        released = False
        for line in server.stdout:
            told = json.loads(line)
            if "step" not in told:
                report = told
                break
            (undone if told["undone"] else steps).append(told["step"])
            beside += not told["undone"] and told["running"] > 0
            refused += told["refused"]
            if not released and len(set(steps)) >= 4:
                released = True
                eater.communicate("\n", timeout=PATIENCE_S)
                server.stdin.write("\n")
                server.stdin.flush()
        full.cancel()
        _, err = server.communicate(timeout=PATIENCE_S)
    finally:
        for process in (server, eater):
            if process is not None:
                process.kill()
                process.wait()
    order = list(dict.fromkeys(steps))
    print(f"steps {steps} ({beside} beside requests), undone {undone}, {report}, hits {group.limit_hits}")
    assert released, f"only {order} was taken; {err}"
    known = ["stop_admitting", "drop_prefix_cache", "release_kv_pages", "page_out_weights", "shrink_slots"]
    known.append("end_newest")
    assert order == known[: len(order)]
    # Steps were taken while requests ran.
    assert beside >= 3
    assert report["wrong"] == []
    assert report["same"] > 0
    assert refused == steps.count("stop_admitting")
    assert undone[-1] == "stop_admitting"
    assert report["back"]
    assert report["slots"] == 8
    assert group.oom_kills == 0


def group_limit_left(group: LimitedGroup, made: MemoryPlan, spare: int) -> int:
    """Bytes that leave the server its private memory and 16 MiB for its files, which want more."""
    return made.needed + spare - made.anonymous - 16 * MIB

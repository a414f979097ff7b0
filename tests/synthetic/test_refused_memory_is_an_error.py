"""Where the system refuses memory, the error says what was needed, what can be had, and what would fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeseek.errors import DoesNotFitError
from edgeseek.package.address_space import largest_mapping
from tests.make_models.tiny import TinyModel, write
from tests.synthetic.models import package_folder

MIB = 1 << 20
#: 46 MiB at f32.
MODEL = TinyModel("some", "llama", 95, 512, 1536, 8, 8, 64, layers=3, extra={"max_position_embeddings": 4096})

#: Loads everything, then limits the address space to what is in use and some more.
_SCRIPT = """
import json, resource, sys
from pathlib import Path
import numpy
from edgeseek import _core
from edgeseek.errors import DoesNotFitError
from edgeseek.package import open_package
from edgeseek.runtime.native import NativeBackend

path, what, more = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def limit():
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + more, resource.RLIM_INFINITY))

def refused(work):
    limit()
    try:
        work()
    except DoesNotFitError as error:
        print(json.dumps({"error": str(error), "needed": error.needed, "available": error.available}))

if what == "map":
    refused(lambda: open_package(path))
else:
    package = open_package(path)
    blocks, preload = (2000, "none") if what == "pool" else (8, "copy")
    refused(lambda: NativeBackend(package, blocks=blocks, threads=1, preload=preload))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("refused")
    package_folder(write(MODEL, folder / "checkpoint"), folder / "package", "f32").close()
    return folder / "package"


def refusal(package: Path, what: str, more: int) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(package), what, str(more)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_pool_that_is_refused_names_the_context_that_can_be_had(package: Path) -> None:
    told = refusal(package, "pool", 100 * MIB)
    # 3 layers × 8 heads × 64 dimensions, keys and values of 2 bytes.
    block = 32 * 3 * 8 * 64 * 2 * 2
    assert told["needed"] == 2000 * block
    assert 60 * MIB < told["available"] <= 100 * MIB
    assert f"a --context of {told['available'] // block * 32} tokens or fewer" in told["error"]


def test_a_copy_of_the_weights_that_is_refused_names_the_way_without(package: Path) -> None:
    told = refusal(package, "copy", 30 * MIB)
    assert told["needed"] > 36 * MIB
    assert told["available"] < 31 * MIB
    assert "--preload populate, which needs no copy" in told["error"]


def test_a_mapping_that_is_refused_names_both_sizes(package: Path) -> None:
    told = refusal(package, "map", 20 * MIB)
    assert told["needed"] == (package / "model.safetensors").stat().st_size
    assert f"{told['needed']:,} bytes" in told["error"]
    assert told["available"] < 21 * MIB


def test_where_nothing_is_refused_the_largest_is_just_below_what_was_asked() -> None:
    assert largest_mapping(10 * MIB) == 9 * MIB
    assert largest_mapping(1) == 0
    assert DoesNotFitError("", needed=2, available=1).exit_code == 1

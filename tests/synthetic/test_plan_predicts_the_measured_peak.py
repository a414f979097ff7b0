"""What the plan says of private and of file-backed memory is what a process takes that uses all of it.

Each configuration is a process of its own that loads, fills every slot's context and reports its peak.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.make_models.latent import Latent
from tests.make_models.tiny import TinyModel, write
from tests.synthetic.models import package_folder

MIB = 1 << 20
WORKER = Path(__file__).with_name("memory_worker.py")

#: 25 million weights, and 12 KiB of keys and values a token.
MIDDLE = TinyModel(
    "middle", "llama", 81, 512, 1536, 6, 6, 64, layers=8, extra={"max_position_embeddings": 4096}
)
#: Latent attention of 8 layers with 288 dimensions a token.
LATENT = TinyModel(
    "latent",
    "deepseek_v2",
    82,
    256,
    512,
    8,
    8,
    32,
    layers=8,
    latent=Latent(256, 32, 32, 32),
    extra={"max_position_embeddings": 16384},
)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function from "middle" or "latent" to its checkpoint, or with a scheme to its package."""
    root = tmp_path_factory.mktemp("middle-sized")
    models = {"middle": MIDDLE, "latent": LATENT}

    def folder(name: str) -> Path:
        model, _, scheme = name.partition("+")
        source = root / model
        if not source.exists():
            write(models[model], source)
        if not scheme:
            return source
        target = root / name
        if not target.exists():
            package_folder(source, target, scheme).close()  # type: ignore[arg-type]
        return target

    return folder


def measured(*words: str) -> dict[str, Any]:
    """What the worker reports in its last line."""
    done = subprocess.run(
        [sys.executable, str(WORKER), *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def assert_predicted(report: dict[str, Any]) -> None:
    """Each kind within 3 % or 16 MiB, whichever is more."""
    for kind, taken in (("anonymous", "RssAnon"), ("file", "RssFile"), ("peak", "VmHWM")):
        planned = report["planned"][kind]
        apart = abs(report[taken] - planned)
        shown = f"{kind}: planned {planned / MIB:.1f} MiB, took {report[taken] / MIB:.1f} MiB"
        assert apart <= max(16 * MIB, 0.03 * report[taken]), shown


@pytest.mark.parametrize(
    ("package", "options"),
    [
        ("middle+f32", {"context": 256}),
        ("middle+f32", {"context": 256, "preload": "copy"}),
        ("middle+q8", {"context": 2048, "slots": 4}),
        ("middle+q8", {"context": 1024, "slots": 8, "kv": "int8"}),
        ("middle+q4", {"context": 4096, "slots": 2, "speculation": "off"}),
        ("latent+q8", {"context": 1024, "slots": 8, "threads": 1}),
    ],
)
def test_a_process_takes_what_was_planned(
    package: str, options: dict[str, Any], folders: Callable[[str], Path]
) -> None:
    assert_predicted(measured("run", str(folders(package)), json.dumps(options)))


@pytest.mark.parametrize("scheme", ["q8", "q4", "f32"])
def test_an_import_takes_what_was_planned(
    scheme: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    assert_predicted(measured("import", str(folders("middle")), str(tmp_path), scheme))


@pytest.mark.parametrize("scheme", ["q4k", "int4"])
def test_quantizing_without_a_text_takes_what_an_import_does(
    scheme: str, folders: Callable[[str], Path], tmp_path: Path
) -> None:
    assert_predicted(measured("quantize", str(folders("middle")), str(tmp_path), scheme))


@pytest.mark.real_model
@pytest.mark.parametrize(
    ("file", "options"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", {"context": 2048, "slots": 2}),
        ("SmolLM2-135M-Instruct.Q4_1.gguf", {"context": 2048, "slots": 4, "kv": "int8"}),
        ("Qwen2.5-Coder-0.5B-Instruct.gguf", {"context": 2048}),
    ],
)
def test_a_real_model_takes_what_was_planned(
    file: str, options: dict[str, Any], test_model: Callable[[str], Path], tmp_path: Path
) -> None:
    report = measured("import", str(test_model(file)), str(tmp_path), "")
    assert_predicted(report)
    (package,) = (path for path in (tmp_path / "packages").iterdir() if path.is_dir())
    assert_predicted(measured("run", str(package), json.dumps(options)))

"""Real GGUF files: every stored value arrives, and the import stays small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf.quants import dequantize

from edgeseek.checkpoints import open_checkpoint
from edgeseek.package import open_package, verify_package
from edgeseek.package.pieces import restore_head_rows
from edgeseek.quantize.packing import unpack
from edgeseek.quantize.schemes import stored_bytes
from tests.unit.package.tiny_checkpoints import make_package

REPOSITORY = Path(__file__).parents[3]
pytestmark = pytest.mark.real_model

#: Imports argv[1] into the store argv[2] and prints the peak of its resident memory, in KiB.
CHILD = """
import sys
from pathlib import Path
from edgeseek.memory.limits import peak_rss
from edgeseek.settings import Settings
from edgeseek.store import Store

settings = Settings(cache_dir=Path(sys.argv[2]))
Store(settings).pull(sys.argv[1])
print(peak_rss(settings) // 1024)
"""


#: Rows of a vocabulary's table that are compared: the reference dequantizer is slow.
COMPARED_ROWS = 4096


@pytest.mark.parametrize(
    ("name", "every"), [("SmolLM2-135M-Instruct.Q4_1.gguf", 1), ("Qwen2.5-Coder-0.5B-Instruct.gguf", 12)]
)
def test_values_of_the_file_are_in_the_package(name, every, test_model, tmp_path):
    """All tensors of every so many layers, whole but for the rows of the tables."""
    path = test_model(name)
    with open_checkpoint(path) as checkpoint:
        make_package(checkpoint, tmp_path / "p")
    verify_package(tmp_path / "p")
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    with open_package(tmp_path / "p") as package:
        records = package.manifest.tensors
        assert {record.source_name for record in records.values()} == set(stored)
        for key, record in records.items():
            if key.startswith("layers.") and int(key.split(".")[1]) % every:
                continue
            tensor = package.tensors[key]
            source = stored[record.source_name]
            matrix = len(tensor.shape) == 2
            rows = source.data[:COMPARED_ROWS] if matrix else source.data
            expected = dequantize(rows, source.tensor_type)
            if package.config.architecture == "llama" and (".attn.q." in key or ".attn.k." in key):
                expected = restore_head_rows(expected.view(np.uint8), package.config.head_dim).view(
                    np.float32
                )
            shape = (len(rows), tensor.shape[1]) if matrix else tensor.shape
            size = stored_bytes(tensor.scheme, tensor.layout, shape)
            values = unpack(tensor.data[:size], tensor.scheme, tensor.layout, shape)
            np.testing.assert_array_equal(values, expected, err_msg=key)


def test_an_import_stays_under_256_mib(test_model, tmp_path):
    path = test_model("Qwen2.5-Coder-0.5B-Instruct.gguf")
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(path), str(tmp_path / "home")],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]),
        },
        check=True,
    )
    assert int(child.stdout) < 256 * 1024

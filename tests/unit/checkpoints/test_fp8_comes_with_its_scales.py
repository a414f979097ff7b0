"""8-bit floats are read with the scales of their blocks, as DeepSeek-V3's own code reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from edgeseek.checkpoints import open_checkpoint
from edgeseek.checkpoints.fp8 import e4m3_values
from edgeseek.errors import CheckpointFormatError, MissingTensorError

ROWS, COLUMNS = 300, 200


def write(folder: Path, tensors: dict[str, tuple[str, npt.NDArray[Any]]]) -> Path:
    """A folder with one safetensors file, built by hand since numpy has no 8-bit floats."""
    header, data = {}, b""
    for name, (dtype, value) in tensors.items():
        end = len(data) + value.nbytes
        header[name] = {"dtype": dtype, "shape": list(value.shape), "data_offsets": [len(data), end]}
        data += value.tobytes()
    text = json.dumps(header).encode()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def codes() -> npt.NDArray[np.uint8]:
    """Every finite code, in a matrix of odd size."""
    finite = np.array([code for code in range(256) if code & 127 != 127], dtype=np.uint8)
    return np.resize(finite, (ROWS, COLUMNS))


def scales() -> npt.NDArray[np.float32]:
    return np.random.default_rng(5).uniform(1e-4, 2e-3, (3, 2)).astype(np.float32)


def test_every_code_has_the_value_of_the_format() -> None:
    values = e4m3_values()
    # From the table of the format's paper: one, the largest, the least normal and the least subnormal.
    for code, value in (
        (0x38, 1.0),
        (0x7E, 448.0),
        (0x08, 2.0**-6),
        (0x01, 2.0**-9),
        (0xC0, -2.0),
        (0x00, 0.0),
    ):
        assert values[code] == np.float32(value)
    assert np.flatnonzero(np.isnan(values)).tolist() == [0x7F, 0xFF]
    assert (values[128:255] == -values[:127]).all()
    assert (np.diff(values[:127]) > 0).all()


def test_rows_are_values_times_the_scales_of_their_blocks(tmp_path: Path) -> None:
    tensors: dict[str, tuple[str, npt.NDArray[Any]]] = {
        "a.weight": ("F8_E4M3", codes()),
        "a.weight_scale_inv": ("F32", scales()),
    }
    with open_checkpoint(write(tmp_path, tensors)) as checkpoint:
        assert list(checkpoint.tensors) == ["a.weight"]
        tensor = checkpoint.tensors["a.weight"]
        assert (tensor.name, tensor.dtype, tensor.shape) == ("a.weight", "F8_E4M3", (ROWS, COLUMNS))
        want = np.empty((ROWS, COLUMNS), np.float32)
        for row in range(ROWS):
            for column in range(COLUMNS):
                want[row, column] = e4m3_values()[codes()[row, column]] * scales()[row // 128, column // 128]
        for start, stop in ((0, ROWS), (0, 1), (127, 129), (255, 300), (130, 130)):
            rows = tensor.read_rows(start, stop)
            assert rows.shape == (stop - start, 4 * COLUMNS)
            assert rows.tobytes() == want[start:stop].tobytes()
        with pytest.raises(ValueError, match="rows 0 to 301"):
            tensor.read_rows(0, 301)


def test_torch_reads_the_same_values() -> None:
    torch = pytest.importorskip("torch")
    bits = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(torch.float8_e4m3fn)
    np.testing.assert_array_equal(bits.float().numpy(), e4m3_values())


def test_a_weight_without_scales_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        MissingTensorError, match="'a.weight' as F8_E4M3, and 'a.weight_scale_inv'.*is missing"
    ):
        open_checkpoint(write(tmp_path, {"a.weight": ("F8_E4M3", codes())}))


@pytest.mark.parametrize(
    "scale",
    [
        ("F32", np.ones((2, 2), np.float32)),
        ("F16", np.ones((3, 2), np.float16)),
        ("F32", np.ones(6, np.float32)),
    ],
)
def test_scales_of_another_shape_or_type_are_named(
    scale: tuple[str, npt.NDArray[Any]], tmp_path: Path
) -> None:
    tensors: dict[str, tuple[str, npt.NDArray[Any]]] = {"a.weight": ("F8_E4M3", codes())}
    tensors["a.weight_scale_inv"] = scale
    with pytest.raises(CheckpointFormatError, match=r"'a.weight_scale_inv' is F.*asks for F32 \[3, 2\]"):
        open_checkpoint(write(tmp_path, tensors))


def test_scales_without_a_weight_stay_a_tensor_of_their_own(tmp_path: Path) -> None:
    with open_checkpoint(write(tmp_path, {"b.weight_scale_inv": ("F32", scales())})) as checkpoint:
        assert list(checkpoint.tensors) == ["b.weight_scale_inv"]

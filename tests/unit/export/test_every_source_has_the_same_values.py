"""A folder, read for export, has the values of the float package made of it, whole or in pieces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgeseek.export.source import SourceTensor, open_source, row_ranges
from tests.make_models.tiny import CASES, write
from tests.synthetic.models import package_folder


def whole(tensor: SourceTensor) -> np.ndarray:
    return tensor.floats(0, tensor.shape[0] if len(tensor.shape) == 2 else 1)


@pytest.mark.parametrize("name", CASES)
def test_a_folder_has_the_values_of_its_float_package(name: str, tmp_path: Path) -> None:
    folder = write(CASES[name], tmp_path / "folder")
    package_folder(folder, tmp_path / "package", "f32").close()
    with open_source(folder) as source, open_source(tmp_path / "package") as package:
        assert source.tensors.keys() == package.tensors.keys()
        for tensor in source.tensors:
            before, after = source.tensors[tensor], package.tensors[tensor]
            np.testing.assert_array_equal(whole(after), whole(before), err_msg=tensor)
            for one in (before, after):
                parts = [one.floats(start, stop) for start, stop in row_ranges(one, 1, 1000)]
                np.testing.assert_array_equal(np.concatenate(parts), whole(before), err_msg=tensor)


@pytest.mark.parametrize("scheme", ["q4", "q8", "f16"])
def test_a_package_is_read_in_pieces_of_whole_tiles(scheme: str, tmp_path: Path) -> None:
    folder = write(CASES["llama-untied"], tmp_path / "folder")
    package_folder(folder, tmp_path / "package", scheme).close()  # type: ignore[arg-type]
    with open_source(tmp_path / "package") as package:
        tensor = package.tensors["layers.0.mlp.up.weight"]
        # 200 rows are twelve and a half tiles.
        ranges = list(row_ranges(tensor, 1, 5000))
        assert ranges[-1][1] == 200
        assert len(ranges) > 2
        parts = [tensor.floats(start, stop) for start, stop in ranges]
        np.testing.assert_array_equal(np.concatenate(parts), whole(tensor))
        if scheme != "f16":
            assert sum(tensor.blocks(start, stop).rows for start, stop in ranges) == 200

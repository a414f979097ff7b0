"""Whatever a header is written with, our reader and its offsets give back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeseek.checkpoints.gguf_header import read_header
from edgeseek.checkpoints.mapping import MappedFile
from edgeseek.export.gguf_header import ALIGNMENT, TensorInfo, header, padding

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
FLOATS = st.floats(width=32, allow_nan=False)
WHOLE = st.integers(-(2**63), 2**64 - 1)
SMALL = st.integers(-(2**31), 2**31 - 1)
VALUES = st.one_of(
    st.booleans(),
    WHOLE,
    FLOATS,
    TEXTS,
    st.lists(TEXTS, max_size=5),
    st.lists(SMALL, min_size=1, max_size=5),
    st.lists(FLOATS, min_size=1, max_size=5),
    st.lists(st.booleans(), min_size=1, max_size=5),
)
KEYS = st.from_regex(r"[a-z]{1,8}(\.[a-z_]{1,8})?", fullmatch=True)
TENSORS = st.lists(
    st.tuples(st.sampled_from(["F32", "F16", "Q4_0", "Q8_0"]), st.integers(1, 4), st.integers(1, 3)),
    max_size=5,
)


@settings(deadline=None, max_examples=80)
@given(
    metadata=st.dictionaries(
        st.from_regex(r"[a-z]{1,8}(\.[a-z_]{1,8})?", fullmatch=True), VALUES, max_size=8
    ),
    tensors=TENSORS,
)
def test_metadata_and_places_come_back(metadata, tensors):
    infos = [
        TensorInfo(f"t{number}", dtype, (rows, 32 * blocks))
        for number, (dtype, rows, blocks) in enumerate(tensors)
    ]
    contents = [np.full(info.size, number, np.uint8).tobytes() for number, info in enumerate(infos)]
    data = b"".join(content + bytes(padding(len(content))) for content in contents)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        path.write_bytes(header(metadata, infos) + data)
        file = MappedFile(path)
        found = read_header(file)
        assert dict(found.metadata) == metadata
        assert [(t.name, t.dtype, t.shape) for t in found.tensors.values()] == [
            (info.name, info.dtype, info.shape) for info in infos
        ]
        for tensor, content in zip(found.tensors.values(), contents, strict=True):
            assert tensor.read_rows(0, tensor.shape[0]).tobytes() == content
        file.close()


def test_the_data_begins_at_a_multiple_of_the_alignment():
    for length in range(40):
        assert len(header({"general.name": "x" * length}, [])) % ALIGNMENT == 0


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (None, "cannot hold"),
        (2**64, "more than 64 bits"),
        ([1, "a"], "mixes kinds"),
        ({}, "cannot hold"),
    ],
)
def test_values_that_gguf_cannot_hold_are_named(value, complaint):
    with pytest.raises(ValueError, match=f"'general.x'.*{complaint}"):
        header({"general.x": value}, [])

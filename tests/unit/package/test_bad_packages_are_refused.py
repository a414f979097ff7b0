from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeseek.errors import PackageDamagedError, PackageError, PackageFormatError
from edgeseek.package import open_package, verify_package
from tests.unit.package.tiny_checkpoints import folder, make_package

Edit = Callable[[dict[str, Any]], object]
Q = "layers.0.attn.q.weight"


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    path: Path = tmp_path_factory.mktemp("good") / "tiny"
    make_package(folder(), path)
    return path


@pytest.fixture
def package(good, tmp_path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "tiny"))


def edit_manifest(package: Path, edit: Edit) -> None:
    path = package / "edgeseek.json"
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def edit_header(package: Path, edit: Edit, pad: int = 64) -> None:
    path = package / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    edit(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-(8 + len(text)) // pad) * pad - 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


def test_the_good_package_opens_and_verifies(package):
    edit_manifest(package, lambda document: None)
    edit_header(package, lambda header: None)
    verify_package(package)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda d: d.update(magic="Edgeseek-package"), "not an edgeseek package"),
        (lambda d: d.pop("magic"), "not an edgeseek package"),
        (lambda d: d.update(format_version=2), "format version 2, and this edgeseek reads 1"),
        (lambda d: d.pop("config"), "lacks 'config'"),
        (lambda d: d.pop("files"), "lacks 'files'"),
        (lambda d: d["config"].update(num_layers=0), "malformed: 0 stands"),
        (lambda d: d["config"].update(num_layers=10**9), "1000000000 layers and only 21 tensors"),
        (lambda d: d["config"].update(hidden_size="64"), "malformed: '64' stands"),
        (lambda d: d["config"].update(architecture="mamba"), "unknown architecture 'mamba'"),
        (lambda d: d["config"].update(architecture=["llama"]), "malformed"),
        (lambda d: d["config"].update(surprise=1), "malformed.*surprise"),
        (lambda d: d["config"].update(num_kv_heads=3), "head counts"),
        (lambda d: d["config"].update(rms_eps=0), "malformed: config has 0"),
        (lambda d: d["config"]["rope"].update(kind="mrope"), "unknown kind of RoPE"),
        (lambda d: d["config"]["rope"].update(kind="yarn"), "RoPE whose original_context is 0"),
        (lambda d: d["config"]["rope"].update(kind="factors", factors=[1.0]), "factors has 1 entries"),
        (lambda d: d["config"]["rope"].update(kind="factors", factors=7), "malformed"),
        (lambda d: d["config"]["rope"].update(theta=None), "theta is None"),
        (lambda d: d["config"]["rope"].update(surprise=1), "malformed.*surprise"),
        (lambda d: d["config"].update(sliding_windows=[8]), "one sliding window for each layer"),
        (lambda d: d["config"].update(intermediate_size=97), r"shape \[96, 64\].*asks for \[97, 64\]"),
        (lambda d: d["config"].update(tied_embeddings=True), "has no tensor 'head.weight'|layout 'rows'"),
        (lambda d: d["tensors"].pop(Q), f"has no tensor '{Q}'"),
        (lambda d: d["tensors"].update({"extra": d["tensors"][Q]}), "llama has no tensor 'extra'"),
        (lambda d: d["tensors"][Q].update(shape=[64, 32]), "is said to take 4352 bytes.*takes 2176"),
        (lambda d: d["tensors"][Q].update(shape=[32, 128]), r"shape \[32, 128\].*asks for \[64, 64\]"),
        (lambda d: d["tensors"][Q].update(shape=[64, -64]), "malformed"),
        (lambda d: d["tensors"][Q].update(shape=7), "malformed"),
        (lambda d: d["tensors"][Q].update(scheme="q3"), "scheme 'q3'"),
        (lambda d: d["tensors"][Q].update(scheme={}), "malformed"),
        (lambda d: d["tensors"][Q].update(layout="rows"), "in layout 'rows', not 'tiles'"),
        (lambda d: d["tensors"][Q].update(bytes=4353), "said to take 4353 bytes"),
        (lambda d: d["tensors"][Q].update(sha256="abc"), "not a sha256"),
        (lambda d: d["tensors"].update({Q: None}), "malformed"),
        (lambda d: d.update(tensors=[]), "malformed"),
        (lambda d: d["files"].update({"tokenizer.json": 5}), "malformed"),
        (lambda d: d["files"].update({"gone.txt": "0" * 64}), "has no gone.txt"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_named(package, edit, found):
    edit_manifest(package, edit)
    with pytest.raises(PackageFormatError, match=found):
        open_package(package)


@pytest.mark.parametrize(
    ("edit", "found"),
    [
        (lambda h: h[Q].update(data_offsets=[10**9, 10**9 + 4352]), "starts at byte|ends at byte"),
        (lambda h: h[Q].update(data_offsets=[64, 32]), "spans bytes 64 to 32"),
        (lambda h: h[Q].update(data_offsets=[-64, 4288]), "spans bytes -64"),
        (lambda h: h[Q].update(data_offsets=[0.5, 4352.5]), "not a flat U8, F16 or F32 tensor"),
        (lambda h: h[Q].update(data_offsets=[True, 4353]), "not a flat U8, F16 or F32 tensor"),
        (lambda h: h[Q].update(shape=[4351]), "do not hold 4351 U8"),
        (lambda h: h[Q].update(shape=[68, 64]), "not a flat"),
        (lambda h: h[Q].update(dtype="I64"), "not a flat"),
        (lambda h: h[Q].update(dtype="F16", shape=[2176]), "typed F16, and its scheme is q8"),
        (lambda h: h.update({Q: 5}), "not a flat"),
        (lambda h: h.update(renamed=h.pop(Q)), "'renamed' is not in edgeseek.json"),
        (lambda h: h["head.weight"].update(data_offsets=[0, 64], shape=[64]), "starts at byte"),
    ],
)
def test_a_header_that_contradicts_the_file_is_named(package, edit, found):
    edit_header(package, edit)
    with pytest.raises(PackageFormatError, match=found):
        open_package(package)


def test_an_offset_beyond_the_file_is_named(package):
    def stretch(header: dict[str, Any]) -> None:
        last = max(header, key=lambda name: header[name]["data_offsets"][1])
        entry = header[last]
        entry["data_offsets"][1] += 1 << 20
        entry["shape"][0] += (1 << 20) // (1 if entry["dtype"] == "U8" else 4)

    edit_header(package, stretch)
    with pytest.raises(PackageFormatError, match="it is truncated"):
        open_package(package)


def test_a_misaligned_file_is_named(package):
    edit_header(package, lambda header: header.update(__metadata__={"a": "b"}), pad=1)
    with pytest.raises(PackageFormatError, match="no multiple of 64"):
        open_package(package)


def test_a_tensor_that_is_too_short_for_its_record_is_named(package):
    def shift(header: dict[str, Any]) -> None:
        order = sorted(header, key=lambda name: header[name]["data_offsets"])
        following = order[order.index(Q) + 1]
        for name, place in ((Q, 1), (following, 0)):
            header[name]["data_offsets"][place] -= 64
            begin, end = header[name]["data_offsets"]
            header[name]["shape"] = [end - begin]

    edit_header(package, shift)
    with pytest.raises(PackageFormatError, match=f"'{Q}' has 4288 bytes, and q8 .* takes 4352"):
        open_package(package)


@pytest.mark.parametrize("keep", [0, 7, 8, 100, 5000, -1, -64])
def test_a_truncated_file_is_named(package, keep):
    path = package / "model.safetensors"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(PackageFormatError, match="model.safetensors"):
        open_package(package)


def test_bytes_after_the_last_tensor_are_refused(package):
    with (package / "model.safetensors").open("ab") as file:
        file.write(bytes(64))
    with pytest.raises(PackageFormatError, match="its tensors end at byte"):
        open_package(package)


def test_a_header_length_that_cannot_be_true_is_refused(package):
    path = package / "model.safetensors"
    for length in (0, 1, 1 << 40, (1 << 64) - 1):
        path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
        with pytest.raises(PackageFormatError, match=f"names a header of {length} bytes"):
            open_package(package)


@pytest.mark.parametrize(
    "name", ["edgeseek.json", "model.safetensors", "tokenizer.json", "generation_config.json"]
)
def test_a_missing_file_is_named(package, name):
    (package / name).unlink()
    with pytest.raises(PackageFormatError, match=f"no (file )?{name}"):
        open_package(package)


def test_what_is_no_package_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "absent", tmp_path / "file", tmp_path):
        with pytest.raises(PackageFormatError, match="not a package"):
            open_package(path)


def test_a_record_that_was_changed_consistently_is_found_by_the_package_digest(package):
    edit_manifest(package, lambda document: document["config"].update(rms_eps=1e-4))
    with pytest.raises(PackageDamagedError, match="do not match the package digest"):
        open_package(package)


def test_a_flipped_weight_bit_opens_and_is_found_by_verifying(package):
    with open_package(package) as opened:
        data = opened.tensors[Q].data.copy()
    path = package / "model.safetensors"
    contents = bytearray(path.read_bytes())
    contents[contents.index(data.tobytes()) + 1234] ^= 1
    path.write_bytes(contents)
    open_package(package).close()
    with pytest.raises(PackageDamagedError, match=f"{Q} differ"):
        verify_package(package)


def test_a_changed_text_file_is_found_by_verifying(package):
    (package / "chat_template.jinja").write_text("{{ other }}")
    with pytest.raises(PackageDamagedError, match="chat_template.jinja differ"):
        verify_package(package)


def test_text_files_that_cannot_be_read_as_what_they_are_are_named(package):
    (package / "generation_config.json").write_text("[1]")
    (package / "chat_template.jinja").write_bytes(b"\xff")
    with open_package(package) as opened:
        with pytest.raises(PackageFormatError, match="not a JSON object"):
            _ = opened.generation_config
        with pytest.raises(PackageFormatError, match="not UTF-8"):
            _ = opened.chat_template


def test_a_closed_package_says_so(package):
    opened = open_package(package)
    opened.close()
    with pytest.raises(PackageError, match="was closed"):
        _ = opened.tensors


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["edgeseek.json", "model.safetensors"]),
    place=st.integers(0, 2600),
    junk=st.binary(min_size=1, max_size=12),
    cut=st.booleans(),
)
def test_damaged_headers_never_do_worse_than_a_package_error(good, tmp_path, name, place, junk, cut):
    package = tmp_path / "tiny"
    if not package.exists():
        shutil.copytree(good, package)
    contents = bytearray((good / name).read_bytes())
    contents[place : place + len(junk)] = b"" if cut else junk
    (package / name).write_bytes(contents)
    try:
        with open_package(package) as opened:
            for tensor in opened.tensors.values():
                tensor.data.sum()
    except PackageError:
        pass
    finally:
        shutil.copy(good / name, package / name)

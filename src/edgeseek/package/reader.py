"""Opens a package: checks everything that can be checked without reading the weights, then maps them.

Hands out views of the mapping; copies no weight. Knows nothing of engine or tokenizer.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from edgeseek.architectures import ModelConfig
from edgeseek.errors import DoesNotFitError, PackageDamagedError, PackageError, PackageFormatError
from edgeseek.package.container import alignment_of, header_length, is_expert, parse_header
from edgeseek.package.manifest import (
    GENERATION_NAME,
    MANIFEST_NAME,
    TEMPLATE_NAME,
    TOKENIZER_NAME,
    WEIGHTS_NAME,
    Manifest,
    TensorRecord,
    parse_manifest,
)

_DTYPES = MappingProxyType({"f16": "F16", "f32": "F32"})


@dataclass(frozen=True, eq=False)
class PackedTensor:
    """A stored tensor: `data` is a read-only uint8 view of the mapping, exactly its stored bytes.

    `shape` is logical, before rows and columns are padded. The view keeps the mapping alive.
    """

    name: str
    scheme: str
    layout: str
    shape: tuple[int, ...]
    data: npt.NDArray[np.uint8]


class Package:
    """An opened package. Made by `open_package`; close it, or use `with`, to drop its mapping."""

    def __init__(self, path: Path, manifest: Manifest, tensors: Mapping[str, PackedTensor]) -> None:
        self.path = path
        self.manifest = manifest
        self._tensors: Mapping[str, PackedTensor] | None = tensors

    @property
    def name(self) -> str:
        """The model's name, as given at conversion."""
        return self.manifest.name

    @property
    def config(self) -> ModelConfig:
        """The model's hyper-parameters."""
        return self.manifest.config

    @property
    def tensors(self) -> Mapping[str, PackedTensor]:
        """All tensors by package name. Raises PackageError after `close`."""
        if self._tensors is None:
            raise PackageError(f"the package {self.path} was closed; open it again")
        return self._tensors

    @property
    def digest(self) -> str:
        """sha256 hex over format version, config and the tensors' records."""
        return self.manifest.digest

    @property
    def source_digest(self) -> str:
        """sha256 hex of the checkpoint it was made from."""
        return self.manifest.source_digest

    @property
    def weight_bytes(self) -> int:
        """Stored bytes of all tensors, without the padding that aligns them."""
        return sum(record.size for record in self.manifest.tensors.values())

    @property
    def expert_bytes(self) -> int:
        """Of these, the bytes of experts, which are read only when a token is routed to them."""
        records = self.manifest.tensors.items()
        return sum(record.size for name, record in records if is_expert(name))

    @property
    def tokenizer_json(self) -> bytes:
        """The `tokenizers` file, read when asked for."""
        return read_file(self.path / TOKENIZER_NAME)

    @property
    def chat_template(self) -> str | None:
        """The Jinja template, None for a model without."""
        if TEMPLATE_NAME not in self.manifest.files:
            return None
        try:
            return read_file(self.path / TEMPLATE_NAME).decode()
        except UnicodeDecodeError as error:
            raise PackageFormatError(f"{self.path / TEMPLATE_NAME} is not UTF-8 ({error})") from error

    @property
    def generation_config(self) -> Mapping[str, Any]:
        """Hugging Face generation keys; empty when the source had none."""
        path = self.path / GENERATION_NAME
        try:
            values = json.loads(read_file(path))
        except (ValueError, RecursionError) as error:
            raise PackageFormatError(f"{path} is not JSON ({error})") from error
        if not isinstance(values, dict):
            raise PackageFormatError(f"{path} is not a JSON object")
        return values

    def close(self) -> None:
        """Let go of the mapping; it is unmapped with the last view that is still in use."""
        self._tensors = None

    def __enter__(self) -> Package:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def is_package(path: Path) -> bool:
    """Whether `path` is a package folder, sound or not, rather than a checkpoint."""
    return (path / MANIFEST_NAME).is_file()


def open_package(path: Path) -> Package:
    """Map the package in folder `path`.

    Checks magic, version, config, records, offsets against the file's size, shapes, alignment and the
    package digest, but not the weights' digests; `verify_package` does that. Raises PackageFormatError
    for what contradicts itself, PackageDamagedError for a changed record, PackageError for what cannot
    be read, DoesNotFitError where the system refuses to map so much.
    """
    where = str(path / MANIFEST_NAME)
    if not path.is_dir():
        raise PackageFormatError(f"{path} is not a package folder")
    manifest, claimed = parse_manifest(read_file(path / MANIFEST_NAME), where)
    for name in (TOKENIZER_NAME, GENERATION_NAME, *manifest.files):
        if not (path / name).is_file():
            raise PackageFormatError(f"{path} has no {name}; convert or pull the model again")
    tensors = _map_weights(path / WEIGHTS_NAME, manifest)
    if manifest.digest != claimed:
        raise PackageDamagedError(
            f"{where}: the records do not match the package digest; convert or pull the model again"
        )
    return Package(path, manifest, tensors)


def read_file(path: Path) -> bytes:
    """Contents of a package's file; PackageFormatError if it is absent, PackageError if unreadable."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
        raise PackageFormatError(
            f"{path.parent} is not a package: it has no file {path.name}; convert or pull the model again"
        ) from error
    except OSError as error:
        raise PackageError(f"cannot read {path}: {error.strerror or error}") from error


def locate(path: Path, manifest: Manifest) -> Mapping[str, int]:
    """Where each tensor of `manifest` starts in the file at `path`, in bytes, after all checks."""
    where = str(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            header = file.read(header_length(prefix, size, where))
    except (FileNotFoundError, IsADirectoryError) as error:
        raise PackageFormatError(
            f"{path.parent} has no {path.name}; convert or pull the model again"
        ) from error
    except OSError as error:
        raise PackageError(f"cannot read {path}: {error.strerror or error}") from error
    found = parse_header(prefix, header, size, where)
    for name in found:
        if name not in manifest.tensors:
            raise PackageFormatError(f"{where}: tensor {name!r} is not in {MANIFEST_NAME}")
    return {name: _place(name, record, found, where) for name, record in manifest.tensors.items()}


def _no_room(path: Path) -> DoesNotFitError:
    from edgeseek.package.address_space import largest_mapping

    size = path.stat().st_size
    available = largest_mapping(size)
    return DoesNotFitError(
        f"the system refused to map the {size:,} bytes of {path}, and {available:,} in one piece can be had; "
        "use a smaller model or --scheme, or raise ulimit -v",
        needed=size,
        available=available,
    )


def _place(name: str, record: TensorRecord, found: Mapping[str, tuple[str, int, int]], where: str) -> int:
    if name not in found:
        raise PackageFormatError(f"{where} has no tensor {name!r}, which {MANIFEST_NAME} names")
    dtype, begin, end = found[name]
    if dtype != _DTYPES.get(record.scheme, "U8"):
        raise PackageFormatError(
            f"{where}: tensor {name!r} is typed {dtype}, and its scheme is {record.scheme}"
        )
    if end - begin < record.size:
        raise PackageFormatError(
            f"{where}: tensor {name!r} has {end - begin} bytes, and {record.scheme} {list(record.shape)} "
            f"takes {record.size}"
        )
    if begin % alignment_of(name, record.size):
        raise PackageFormatError(
            f"{where}: tensor {name!r} starts at byte {begin}, which is no multiple of "
            f"{alignment_of(name, record.size)}"
        )
    return begin


def _map_weights(path: Path, manifest: Manifest) -> Mapping[str, PackedTensor]:
    places = locate(path, manifest)
    try:
        with path.open("rb") as file:
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            raise _no_room(path) from error
        raise PackageError(f"cannot map {path}: {error}") from error
    tensors = {}
    for name, record in manifest.tensors.items():
        if places[name] + record.size > len(mapping):
            raise PackageFormatError(f"{path} shrank while it was opened; convert or pull the model again")
        data = np.frombuffer(mapping, np.uint8, record.size, places[name])
        tensors[name] = PackedTensor(name, record.scheme, record.layout, record.shape, data)
    return MappingProxyType(tensors)

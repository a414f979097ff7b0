"""`edgeseek.json`: what a package says about itself, written, read and checked for consistency.

Knows nothing of the container's offsets.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from edgeseek.architectures import ModelConfig, expected_tensors
from edgeseek.architectures.experts import check_moe
from edgeseek.architectures.latent import check_latent
from edgeseek.architectures.rope import problem as rope_problem
from edgeseek.architectures.spec import RopeKind
from edgeseek.errors import PackageFormatError, UnsupportedCheckpointError
from edgeseek.quantize.schemes import LAYOUT_NAMES, SCHEMES, stored_bytes

MAGIC = "edgeseek-package"
FORMAT_VERSION = 1
MANIFEST_NAME = "edgeseek.json"
WEIGHTS_NAME = "model.safetensors"
TOKENIZER_NAME = "tokenizer.json"
TEMPLATE_NAME = "chat_template.jinja"
GENERATION_NAME = "generation_config.json"

#: Fields of a config whose values are not counts.
_CHECKED_APART = frozenset(
    {"architecture", "rope", "tied_embeddings", "rms_eps", "bos_token_id", "moe", "latent"}
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TensorRecord:
    """One tensor as `edgeseek.json` records it; `size` is in bytes, without alignment padding."""

    scheme: str
    layout: str
    shape: tuple[int, ...]
    size: int
    sha256: str
    source_name: str
    source_dtype: str
    exact: bool
    error: float | None = None

    def to_json(self) -> dict[str, Any]:
        """The record as FORMAT.md lays it out."""
        record: dict[str, Any] = {
            "scheme": self.scheme,
            "layout": self.layout,
            "shape": list(self.shape),
            "bytes": self.size,
            "sha256": self.sha256,
            "source": {"name": self.source_name, "dtype": self.source_dtype},
            "exact": self.exact,
        }
        if self.error is not None:
            record["error"] = self.error
        return record


@dataclass(frozen=True)
class Manifest:
    """All of `edgeseek.json`. `files` maps the package's text files to the sha256 of their bytes."""

    name: str
    config: ModelConfig
    tensors: Mapping[str, TensorRecord]
    files: Mapping[str, str]
    source_digest: str
    calibration: Mapping[str, Any] | None = None
    format_version: int = field(default=FORMAT_VERSION, init=False)

    @property
    def digest(self) -> str:
        """sha256 hex over format version, config and the tensors' records, as compact JSON, keys sorted."""
        covered = {
            "format_version": self.format_version,
            "config": self.config.to_json(),
            "tensors": {name: record.to_json() for name, record in self.tensors.items()},
        }
        text = json.dumps(covered, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """The file's contents."""
        document = {
            "magic": MAGIC,
            "format_version": self.format_version,
            "name": self.name,
            "config": self.config.to_json(),
            "tensors": {name: record.to_json() for name, record in self.tensors.items()},
            "files": dict(self.files),
            "package_digest": self.digest,
            "source_digest": self.source_digest,
            "calibration": None if self.calibration is None else dict(self.calibration),
        }
        return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def parse_manifest(data: bytes, where: str) -> tuple[Manifest, str]:
    """The manifest and the package digest it claims.

    Raises PackageFormatError for another magic or version, malformed records, and tensors that are not
    those of the config's architecture.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PackageFormatError(f"{where} is not JSON ({error}); convert or pull the model again") from error
    if not isinstance(document, dict) or document.get("magic") != MAGIC:
        raise PackageFormatError(f"{where} does not say magic {MAGIC!r}: this is not an edgeseek package")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise PackageFormatError(
            f"{where} has format version {version!r}, and this edgeseek reads {FORMAT_VERSION}; "
            f"convert the model again or use the edgeseek that wrote it"
        )
    try:
        manifest = Manifest(
            name=_text(document["name"]),
            config=_config(document["config"]),
            tensors={name: _record(name, record) for name, record in document["tensors"].items()},
            files={_text(name): _hash(value) for name, value in document["files"].items()},
            source_digest=_text(document["source_digest"]),
            calibration=document["calibration"],
        )
        claimed = _hash(document["package_digest"])
    except KeyError as error:
        raise PackageFormatError(f"{where} lacks {error}; convert or pull the model again") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise PackageFormatError(f"{where} is malformed: {error}; convert or pull the model again") from error
    _check_tensors(manifest, where)
    return manifest, claimed


def _check_tensors(manifest: Manifest, where: str) -> None:
    """Hold names, shapes and layouts against what the architecture runs on."""
    config = manifest.config
    # A layer has more than one tensor; this bounds the work that a damaged count can cause.
    if config.num_layers > len(manifest.tensors):
        raise PackageFormatError(
            f"{where}: {config.num_layers} layers and only {len(manifest.tensors)} tensors"
        )
    try:
        expected = expected_tensors(config)
    except UnsupportedCheckpointError as error:
        raise PackageFormatError(f"{where}: {error}") from error
    for name, (_, optional) in expected.items():
        if not optional and name not in manifest.tensors:
            raise PackageFormatError(f"{where} has no tensor {name!r}, which {config.architecture} needs")
    for name, record in manifest.tensors.items():
        if name not in expected:
            raise PackageFormatError(f"{where}: {config.architecture} has no tensor {name!r}")
        shape = expected[name][0]
        if record.shape != shape:
            raise PackageFormatError(
                f"{where}: tensor {name!r} has shape {list(record.shape)}, and the config asks for "
                f"{list(shape)}"
            )
        layout = layout_for(name, shape, config)
        plain = layout == "flat" or name.endswith(".router.weight")
        if record.layout != layout or (plain and record.scheme != "f32"):
            raise PackageFormatError(
                f"{where}: tensor {name!r} is {record.scheme} in layout {record.layout!r}, not {layout!r}"
            )


def layout_for(name: str, shape: tuple[int, ...], config: ModelConfig) -> str:
    """The layout FORMAT.md gives to the tensor of that name."""
    if len(shape) == 1:
        return "flat"
    return "rows" if name == "embed.weight" and not config.tied_embeddings else "tiles"


def _record(name: str, record: Any) -> TensorRecord:
    shape = tuple(_count(size) for size in record["shape"])
    scheme, layout = record["scheme"], record["layout"]
    if scheme not in SCHEMES or layout not in LAYOUT_NAMES:
        raise PackageFormatError(
            f"tensor {name!r} has scheme {scheme!r} in layout {layout!r}, which this edgeseek does not know"
        )
    size = _count(record["bytes"])
    if size != stored_bytes(scheme, layout, shape):
        raise ValueError(
            f"tensor {name!r} is said to take {size} bytes, and {scheme} {layout} {list(shape)} takes "
            f"{stored_bytes(scheme, layout, shape)}"
        )
    error = record.get("error")
    return TensorRecord(
        scheme=scheme,
        layout=layout,
        shape=shape,
        size=size,
        sha256=_hash(record["sha256"]),
        source_name=_text(record["source"]["name"]),
        source_dtype=_text(record["source"]["dtype"]),
        exact=bool(record["exact"]),
        error=None if error is None else float(error),
    )


def _config(document: Any) -> ModelConfig:
    config = ModelConfig.from_json(document)
    for item in fields(config):
        value = getattr(config, item.name)
        if item.name in _CHECKED_APART:
            continue
        for number in value if isinstance(value, tuple) else (value,):
            _count(number, least=0 if isinstance(value, tuple) else 1)
    _text(config.architecture)
    if config.moe is not None:
        check_moe(config.moe)
    if config.latent is not None:
        check_latent(config.latent)
        if config.head_dim != config.latent.head_dim or config.latent.rotated_dim % 2:
            raise ValueError("config has a head_dim that is not that of its latent attention")
    if config.bos_token_id is not None:
        _count(config.bos_token_id, least=0)
    tied: Any = config.tied_embeddings
    if not isinstance(tied, bool) or config.rope.kind not in get_args(RopeKind):
        raise ValueError("config has an unknown kind of RoPE or of embedding")
    epsilon: Any = config.rms_eps
    if not isinstance(epsilon, int | float) or not 0 < epsilon <= sys.float_info.max:
        raise ValueError(f"config has {epsilon!r} where a positive number belongs")
    wrong = rope_problem(config.rope, config.rotary_dim)
    if wrong is not None:
        raise ValueError(f"config has a RoPE whose {wrong}")
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise ValueError("config has head counts that do not fit together")
    if len(config.sliding_windows) not in (0, config.num_layers):
        raise ValueError("config does not give one sliding window for each layer")
    return config


def _count(value: Any, least: int = 1) -> int:
    if type(value) is not int or not least <= value < 1 << 48:
        raise ValueError(f"{value!r} stands where a whole number of at least {least} belongs")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} stands where a string belongs")
    return value


def _hash(value: Any) -> str:
    if not _SHA256.fullmatch(_text(value)):
        raise ValueError(f"{value!r} is not a sha256 digest")
    return str(value)

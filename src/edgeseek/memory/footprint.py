"""What a model's weights take, found before it is loaded, imported or even downloaded.

Reads headers and configs, never weights. A package and a checkpoint are counted tensor by tensor, a bare
config.json by the shapes that its architecture has. Knows nothing of limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edgeseek.architectures import ModelConfig, expected_tensors, parse_config, tensor_rules
from edgeseek.checkpoints.base import Checkpoint, CheckpointKind, LazyTensor, TextAssets
from edgeseek.errors import UnknownModelError
from edgeseek.memory.conversion_peak import ConversionPeak, conversion_peak
from edgeseek.package import is_package, open_package
from edgeseek.package.container import is_expert
from edgeseek.quantize.schemes import ROUNDING_SCHEMES, Scheme, stored_bytes

if TYPE_CHECKING:
    from edgeseek.package import Package

_TABLES = ("embed.weight", "head.weight")


@dataclass(frozen=True)
class Weights:
    """Stored bytes of all tensors, and of these the experts'."""

    total: int
    experts: int


@dataclass(frozen=True)
class Footprint:
    """What is known of a model before it is loaded.

    `stored` says how its matrices are or will be stored. `by_scheme` has the bytes of an import at each
    scheme that weights can be rounded to. `conversion` is the peak of importing it, None for a package.
    """

    name: str
    config: ModelConfig
    weights: Weights
    stored: str
    by_scheme: Mapping[Scheme, Weights]
    conversion: ConversionPeak | None = None


def footprint_of(path: Path, *, scheme: Scheme | None = None, threads: int = 2) -> Footprint:
    """The footprint of a package, a GGUF file, a Hugging Face folder or a config.json.

    A folder without weights counts as its config.json. `scheme` is what a checkpoint would be imported at,
    with `threads`; None keeps a quantization and else rounds to q8. Raises UnknownModelError,
    CheckpointError or PackageError where the source cannot be read.
    """
    if is_package(path):
        with open_package(path) as package:
            return _of_package(package)
    from edgeseek.checkpoints import open_checkpoint
    from edgeseek.checkpoints.folder import CONFIG

    if path.is_file() and path.suffix == ".json":
        return footprint_of_config(_Described(path), scheme=scheme)
    bare = path.is_dir() and (path / CONFIG).is_file()
    if bare and not any(path.glob("*.safetensors")) and not any(path.glob("*.bin")):
        return footprint_of_config(_Described(path / CONFIG), scheme=scheme)
    with open_checkpoint(path) as checkpoint:
        return footprint_of_checkpoint(checkpoint, scheme=scheme, threads=threads)


def footprint_of_checkpoint(
    checkpoint: Checkpoint, *, scheme: Scheme | None = None, threads: int = 2
) -> Footprint:
    """The footprint of what importing an open checkpoint gives. Raises CheckpointError."""
    from edgeseek.package.plan import plan_tensors

    config = parse_config(checkpoint)
    rules = tensor_rules(config, checkpoint)

    def sizes(wanted: Scheme | None) -> list[tuple[str, int]]:
        return [(plan.rule.name, plan.size) for plan in plan_tensors(config, rules, checkpoint, wanted)]

    plans = plan_tensors(config, rules, checkpoint, scheme)
    schemes = {plan.scheme for plan in plans if len(plan.rule.shape) == 2 and plan.rule.role != "router"}
    return Footprint(
        name=checkpoint.path.stem if checkpoint.path.is_file() else checkpoint.path.name,
        config=config,
        weights=_sum(sizes(scheme)),
        stored="+".join(sorted(schemes)),
        by_scheme=MappingProxyType({other: _sum(sizes(other)) for other in ROUNDING_SCHEMES}),
        conversion=conversion_peak(checkpoint, config, plans, threads),
    )


def footprint_of_config(checkpoint: Checkpoint, *, scheme: Scheme | None = None) -> Footprint:
    """The footprint of a checkpoint whose config is there and whose weights need not be.

    Tensors that the architecture may do without are not counted. Raises UnsupportedCheckpointError or
    CheckpointFormatError.
    """
    config = parse_config(checkpoint)
    by_scheme = _by_scheme(config)
    chosen: Scheme = scheme or "q8"
    path = checkpoint.path
    return Footprint(
        name=(path.parent if path.suffix == ".json" else path).name,
        config=config,
        weights=by_scheme[chosen],
        stored=chosen,
        by_scheme=by_scheme,
        conversion=conversion_peak(checkpoint, config, (), 2),
    )


def _of_package(package: Package) -> Footprint:
    config, records = package.config, package.manifest.tensors
    matrices = {
        record.scheme for name, record in records.items() if len(record.shape) == 2 and not _kept(name)
    }
    return Footprint(
        name=package.name,
        config=config,
        weights=Weights(package.weight_bytes, package.expert_bytes),
        stored="+".join(sorted(matrices)),
        by_scheme=_by_scheme(config),
    )


def _by_scheme(config: ModelConfig) -> Mapping[Scheme, Weights]:
    from edgeseek.package.manifest import layout_for

    # What may be absent mostly is: biases, which are small.
    shapes = {name: shape for name, (shape, optional) in expected_tensors(config).items() if not optional}

    def size(name: str, scheme: Scheme) -> int:
        shape = shapes[name]
        kept = len(shape) == 1 or _kept(name)
        # package.plan rounds the tables of token vectors to 8 bits at least.
        chosen = "f32" if kept else "q8" if scheme == "q4" and name in _TABLES else scheme
        return stored_bytes(chosen, layout_for(name, shape, config), shape)

    return MappingProxyType(
        {scheme: _sum([(name, size(name, scheme)) for name in shapes]) for scheme in ROUNDING_SCHEMES}
    )


def _kept(name: str) -> bool:
    """Whether a matrix keeps its values: a router, whose rounding would change which experts are chosen."""
    return name.endswith(".router.weight")


def _sum(sizes: list[tuple[str, int]]) -> Weights:
    return Weights(
        total=sum(size for _, size in sizes), experts=sum(size for name, size in sizes if is_expert(name))
    )


class _Described:
    """A checkpoint of which only the config.json is there, under whatever name."""

    kind: CheckpointKind = "huggingface"
    tensors: Mapping[str, LazyTensor] = MappingProxyType({})
    text_assets = TextAssets()

    def __init__(self, path: Path) -> None:
        from edgeseek.checkpoints.json_files import read_json_object

        if not path.is_file():
            raise UnknownModelError(f"there is no file {path}")
        self.path = path
        self.raw_config: Mapping[str, Any] = MappingProxyType(read_json_object(path))

    def digest(self) -> str:
        return ""

    def close(self) -> None:
        pass

    def __enter__(self) -> _Described:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

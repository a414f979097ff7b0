"""`edgeseek show`: what is inside a pulled model."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgeseek.cli import options
from edgeseek.cli.progress import Progress
from edgeseek.cli.services import services_of
from edgeseek.cli.terminal import Terminal
from edgeseek.cli.text import columns, size

if TYPE_CHECKING:
    from edgeseek.architectures import MoE
    from edgeseek.package import Package, PackedTensor


def show(
    context: typer.Context,
    model: options.Model,
    tensors: Annotated[bool, typer.Option("--tensors", help="List every tensor.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all weights again and compare their digests.")
    ] = False,
    as_object: options.Json = False,
) -> None:
    """Show a pulled model: config, tensors by scheme, digests.

    MODEL is a name from `edgeseek list`, the hub name it was pulled by, or the path of a package or of the
    checkpoint it was made from.
    With --verify, damage ends the command with exit code 1.
    """
    services = services_of(context)
    package = services.open_store(services.settings).open(model)
    try:
        if verify:
            from edgeseek.package import verify_package

            with Progress(services.terminal) as progress:
                verify_package(package.path, lambda done, total: progress("verifying", done, total))
        if as_object:
            services.terminal.line(json.dumps(_as_json(package, tensors, verify), ensure_ascii=False))
        else:
            _print(services.terminal, package, tensors, verify)
    finally:
        package.close()


def _print(terminal: Terminal, package: Package, tensors: bool, verified: bool) -> None:
    config = package.config
    facts = [
        ("name", package.name),
        ("path", str(package.path)),
        ("architecture", config.architecture),
        ("parameters", f"{_parameters(package):,}"),
        ("layers", str(config.num_layers)),
        ("hidden size", str(config.hidden_size)),
        ("feed-forward size", str(config.intermediate_size)),
        *_experts(config.moe),
        (
            "heads",
            f"{config.num_heads} of {config.head_dim} dimensions, {config.num_kv_heads} for keys and values",
        ),
        (
            "vocabulary",
            f"{config.vocab_size:,}{', head tied to the embedding' if config.tied_embeddings else ''}",
        ),
        ("context", f"{config.max_context:,} tokens"),
        ("RoPE", _rope(package)),
        ("chat template", "yes" if package.chat_template is not None else "none"),
        ("weights", size(package.weight_bytes)),
        ("package digest", package.digest),
        ("source digest", package.source_digest),
    ]
    if verified:
        facts.append(("verified", "all tensors match their digests"))
    for line in columns(facts):
        terminal.line(line)
    terminal.line()
    rows = [("SCHEME", "TENSORS", "PARAMETERS", "SIZE", "BITS EACH")]
    for scheme, (count, parameters, stored) in _by_scheme(package.tensors).items():
        bits = f"{8 * stored / parameters:.2f}" if parameters else "-"
        rows.append((scheme, str(count), f"{parameters:,}", size(stored), bits))
    for line in columns(rows, right=(1, 2, 3, 4)):
        terminal.line(line)
    if tensors:
        terminal.line()
        listed = [("TENSOR", "SHAPE", "SCHEME", "LAYOUT", "SIZE")]
        for name, tensor in package.tensors.items():
            shape = " × ".join(str(side) for side in tensor.shape)
            listed.append((name, shape, tensor.scheme, tensor.layout, size(tensor.data.nbytes)))
        for line in columns(listed, right=(4,)):
            terminal.line(line)


def _as_json(package: Package, tensors: bool, verified: bool) -> dict[str, Any]:
    schemes = {
        scheme: {"tensors": count, "parameters": parameters, "bytes": stored}
        for scheme, (count, parameters, stored) in _by_scheme(package.tensors).items()
    }
    shown: dict[str, Any] = {
        "name": package.name,
        "path": str(package.path),
        "config": package.config.to_json(),
        "parameters": _parameters(package),
        "weight_bytes": package.weight_bytes,
        "schemes": schemes,
        "chat_template": package.chat_template,
        "generation_config": dict(package.generation_config),
        "package_digest": package.digest,
        "source_digest": package.source_digest,
    }
    if tensors:
        shown["tensors"] = {
            name: {
                "shape": [*tensor.shape],
                "scheme": tensor.scheme,
                "layout": tensor.layout,
                "bytes": tensor.data.nbytes,
            }
            for name, tensor in package.tensors.items()
        }
    if verified:
        shown["verified"] = True
    return shown


def _by_scheme(tensors: Mapping[str, PackedTensor]) -> dict[str, tuple[int, int, int]]:
    """Tensors, parameters and stored bytes of each scheme, the largest first."""
    sums: dict[str, tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for tensor in tensors.values():
        count, parameters, stored = sums[tensor.scheme]
        sums[tensor.scheme] = (count + 1, parameters + math.prod(tensor.shape), stored + tensor.data.nbytes)
    return dict(sorted(sums.items(), key=lambda item: -item[1][2]))


def _parameters(package: Package) -> int:
    return sum(math.prod(tensor.shape) for tensor in package.tensors.values())


def _experts(moe: MoE | None) -> list[tuple[str, str]]:
    if moe is None:
        return []
    text = f"{moe.experts_per_token} of {moe.num_experts} a token, each of size {moe.intermediate_size}"
    if moe.groups > 1:
        text += f", from {moe.groups_per_token} of {moe.groups} groups"
    if moe.shared_size:
        text += f"; shared ones of size {moe.shared_size}"
    return [("experts", f"{text}; from layer {moe.first_layer} on")]


def _rope(package: Package) -> str:
    rope = package.config.rope
    if rope.kind == "default":
        return f"theta {rope.theta:g}"
    if rope.kind == "factors":
        return f"theta {rope.theta:g}, each frequency divided by its own factor"
    return f"theta {rope.theta:g}, {rope.kind} scaling by {rope.factor:g}"

"""Checks of software: extras that are missing, ONNX Runtime's execution providers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from edgeseek.doctor.finding import Finding
from edgeseek.doctor.probes import Probes

#: What each extra is for, where a user may want it; those that only developers need are not listed.
_PURPOSES: Mapping[str, str] = MappingProxyType(
    {
        "hub": "pulling models from the Hugging Face hub",
        "onnx": "exporting to ONNX and running on ONNX Runtime",
    }
)
_CPU = "CPUExecutionProvider"


def check(probes: Probes) -> Iterator[Finding]:
    """All findings about installed software."""
    for extra, purpose in _PURPOSES.items():
        if extra in probes.extras:
            yield _extra(probes, extra, purpose)
    yield from _providers(probes)


def _extra(probes: Probes, extra: str, purpose: str) -> Finding:
    versions = {package: probes.version(package) for package in probes.extras[extra]}
    missing = [package for package, version in versions.items() if version is None]
    if missing:
        found = f"missing: {', '.join(missing)}"
        return Finding(f"extra {extra}", found, f"for {purpose}", "note", f"pip install 'edgeseek[{extra}]'")
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Finding(f"extra {extra}", found, f"for {purpose}")


def _providers(probes: Probes) -> Iterator[Finding]:
    try:
        names = probes.providers()
    except ImportError as error:
        missing = error.name == "onnxruntime"
        yield Finding(
            "ONNX Runtime",
            "not installed" if missing else f"cannot be loaded ({error})",
            "only needed for exported graphs and for NPUs and GPUs with a provider",
            "note",
            "pip install 'edgeseek[onnx]'" if "onnx" in probes.extras else "pip install onnxruntime",
        )
        return
    others = [name for name in names if name != _CPU]
    if others:
        chips = ", ".join(name.removesuffix("ExecutionProvider") for name in others)
        meaning = f"exported graphs can run on {chips}"
    else:
        meaning = "exported graphs run on the processor; another chip needs a build with its provider"
    yield Finding("ONNX Runtime", ", ".join(names), meaning)

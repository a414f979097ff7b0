"""Weights come into memory as asked, the answer is the same, and a refusal says what would help."""

from __future__ import annotations

import errno
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edgeseek.errors import UsageError
from edgeseek.package import Package
from edgeseek.runtime.backend import Slice
from edgeseek.runtime.native import NativeBackend
from edgeseek.runtime.preload import check_preload, copy_to_huge_pages, lock_failure
from tests.make_models.tiny import CASES
from tests.synthetic.models import logits_of, package_of


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    return package_of(CASES["llama-tied"], tmp_path_factory.mktemp("preload"), "q8")


def test_every_choice_gives_the_same_bits(package: Package) -> None:
    ids = list(range(5, 45))
    found = []
    for choice in ("none", "populate", "lock", "copy"):
        backend = NativeBackend(package, blocks=3, threads=2, preload=choice)
        found.append(logits_of(backend, ids))
        backend.close()
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].view(np.uint32), other.view(np.uint32))


def test_a_copy_is_aligned_read_only_and_the_same(package: Package) -> None:
    copied = copy_to_huge_pages(package.tensors)
    assert list(copied) == list(package.tensors)
    for name, tensor in copied.items():
        original = package.tensors[name].data
        np.testing.assert_array_equal(tensor.data, original)
        assert tensor.data.ctypes.data % 64 == 0
        assert tensor.data.ctypes.data != original.ctypes.data
        assert not tensor.data.flags.writeable


def test_an_unknown_choice_names_those_known() -> None:
    with pytest.raises(UsageError, match="'fast' is unknown; give one of none, populate, lock, copy"):
        check_preload("fast")


def test_a_refused_lock_says_the_limit_and_how_to_raise_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8 << 20, 8 << 20))
    text = str(lock_failure(errno.ENOMEM, 100 << 20))
    assert "needs 102,400 KiB locked and RLIMIT_MEMLOCK allows 8,192 KiB (hard limit 8,192 KiB)" in text
    assert "ulimit -l 102400" in text
    assert "LimitMEMLOCK=" in text


def test_a_failure_that_no_limit_explains_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (unlimited, unlimited))
    assert "Cannot allocate memory" in str(lock_failure(errno.ENOMEM, 1 << 20))


def test_only_a_copy_makes_the_weights_the_processs_own_memory(tmp_path: Path) -> None:
    def anonymous() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * 1024

    model = replace(CASES["llama-tied"], hidden_size=512, intermediate_size=2048, head_dim=128, layers=1)
    large = package_of(model, tmp_path, "f32")
    grown = {}
    for choice in ("none", "populate", "lock", "copy"):
        before = anonymous()
        backend = NativeBackend(large, blocks=1, threads=1, max_step_tokens=1, preload=choice)
        backend.forward([Slice([5], 0, [0])])
        grown[choice] = anonymous() - before
        backend.close()
    assert large.weight_bytes > 12 << 20
    assert grown.pop("copy") > 0.9 * large.weight_bytes
    assert max(grown.values()) < large.weight_bytes / 4

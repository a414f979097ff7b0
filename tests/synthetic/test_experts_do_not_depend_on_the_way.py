"""With experts too, a row's bits are the same in any company; idle experts stay on the disk."""

from __future__ import annotations

import ctypes
import mmap
from pathlib import Path

import numpy as np
import pytest

from edgeseek import _core
from edgeseek.package.manifest import WEIGHTS_NAME
from edgeseek.package.reader import locate
from edgeseek.quantize.schemes import Scheme
from edgeseek.runtime.backend import Slice
from edgeseek.runtime.native import NativeBackend
from tests.make_models.tiny_experts import CASES, TinyExperts, prompt_ids, write
from tests.synthetic.models import backend_of, logits_of, package_folder

LENGTH = 70
WAYS = [(1, 1), (1, 5), (2, 3), (2, LENGTH), (5, 64)]
#: Experts of several pages each.
LARGE = TinyExperts("large", 43, hidden_size=512, moe_intermediate_size=128, experts=16, experts_per_token=2)
#: Pages that one page fault maps at most (the kernel's fault_around_bytes, 64 KiB unless changed).
FAULT_AROUND_PAGES = (64 << 10) // mmap.PAGESIZE


@pytest.mark.parametrize("scheme", ["f32", "q8", "q4"])
@pytest.mark.parametrize("name", ["greedy", "group-limited", "corrected-groups"])
def test_chunks_threads_and_instruction_sets_give_the_same_bits(
    name: str, scheme: Scheme, tmp_path: Path
) -> None:
    case = CASES[name]
    ids = prompt_ids(case, LENGTH)
    with package_folder(write(case, tmp_path / "folder"), tmp_path / "package", scheme) as package:
        whole = logits_of(backend_of(package, LENGTH, threads=1), ids).tobytes()
        for isa in _core.supported_isas():
            for threads, chunk in WAYS:
                backend = backend_of(package, LENGTH, threads=threads, isa=isa)
                chunks = [chunk] * -(-LENGTH // chunk)
                assert logits_of(backend, ids, chunks).tobytes() == whole, (isa, threads, chunk)


@pytest.mark.parametrize("name", ["greedy", "corrected-groups"])
def test_a_batch_of_eight_gives_each_the_bits_it_gets_alone(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    prompts = [prompt_ids(case, LENGTH)[i : i + 12 + 6 * i] for i in range(8)]
    with package_folder(write(case, tmp_path / "folder"), tmp_path / "package", "q8") as package:
        backend = backend_of(package, 8 * 64)
        alone = [logits_of(backend, prompt)[-2:].tobytes() for prompt in prompts]
        tables = [[2 * i, 2 * i + 1] for i in range(8)]
        backend.forward([Slice(p[:-2], 0, t, "last") for p, t in zip(prompts, tables, strict=True)])
        steps = [
            backend.forward([Slice([p[i]], len(p) + i, t) for p, t in zip(prompts, tables, strict=True)])
            for i in (-2, -1)
        ]
        for i, rows in enumerate(alone):
            assert b"".join(step[i].tobytes() for step in steps) == rows


def test_only_experts_that_are_routed_to_are_read(tmp_path: Path) -> None:
    with package_folder(write(LARGE, tmp_path / "folder"), tmp_path / "package", "q8") as package:
        places = locate(package.path / WEIGHTS_NAME, package.manifest)
        base = package.tensors["embed.weight"].data.ctypes.data - places["embed.weight"]
        size = (package.path / WEIGHTS_NAME).stat().st_size
        libc = ctypes.CDLL(None, use_errno=True)
        backend = NativeBackend(package, blocks=2, threads=2, preload="none")
        taps = ["layers.1.routing", "layers.2.routing"]
        before = backend.counters()
        assert libc.madvise(ctypes.c_void_p(base), ctypes.c_size_t(size), mmap.MADV_DONTNEED) == 0
        token = prompt_ids(LARGE, 1)
        backend.forward([Slice(token, 0, [0])])
        touched = _touched_pages(base, size)
        counted = {key: value - before[key] for key, value in backend.counters().items()}
        _, found = backend.forward_with_taps([Slice(token, 0, [0])], taps)
        wanted = {
            f"layers.{layer}.mlp.experts.{expert}."
            for layer in (1, 2)
            for expert in np.flatnonzero(found[f"layers.{layer}.routing"][0])
        }
        assert len(wanted) == counted["experts"] == 4
        read, used, experts, idle = 0, *(np.zeros(len(touched), bool) for _ in range(3))
        for name, place in places.items():
            length = package.manifest.tensors[name].size
            pages = slice(place // mmap.PAGESIZE, -(-(place + length) // mmap.PAGESIZE))
            if ".experts." not in name:
                used[pages] = True
            elif name.rsplit(".", 2)[0] + "." in wanted:
                used[pages] = experts[pages] = True
                read += length
            else:
                idle[pages] = True
        assert touched[experts].all()
        # A fault also maps cached pages beside it, within the same aligned window.
        window = (base // mmap.PAGESIZE + np.arange(len(touched))) // FAULT_AROUND_PAGES
        far = idle & ~np.isin(window, window[used])
        assert far.sum() > 0.8 * idle.sum()
        assert not touched[far].any()
        assert counted["expert_bytes"] == read
        assert backend.bytes_per_token < package.weight_bytes / 2


def _touched_pages(base: int, size: int) -> np.ndarray:
    """Which pages of this process's mapping are in its page table: bit 63 of /proc/self/pagemap's entries."""
    with Path("/proc/self/pagemap").open("rb") as file:
        file.seek(base // mmap.PAGESIZE * 8)
        entries = np.frombuffer(file.read(-(-size // mmap.PAGESIZE) * 8), np.uint64)
    present: np.ndarray = (entries >> np.uint64(63)).astype(bool)
    return present

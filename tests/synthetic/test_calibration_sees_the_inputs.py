"""Statistics are those of the model's inputs; scales change no answer; no model diverges from itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgeseek.calibration.divergence import divergence
from edgeseek.calibration.inputs import inputs_of
from edgeseek.calibration.scaling import find_scales
from edgeseek.calibration.statistics import calibration_tokens, gather
from edgeseek.errors import UsageError
from edgeseek.export.package import write_package
from edgeseek.export.scaled import ScaledSource
from edgeseek.export.source import open_source
from edgeseek.llm import LLM
from edgeseek.quantize.rounding import LeastError
from edgeseek.runtime.backend import Slice
from edgeseek.runtime.native import NativeBackend
from tests.make_models.tiny import CASES, write

TEXT = "def add(a, b):\n    return a + b\n" * 200
WINDOW = 64


def load(case: str, folder: Path) -> LLM:
    source = write(CASES[case], folder / "hf")
    with open_source(source) as opened:
        write_package(opened, folder / "f32", name="f32", schemes=lambda *_: "f32", rounding=LeastError())
    return LLM.load(folder / "f32", context=WINDOW, threads=1)


@pytest.fixture(scope="module", params=["llama-tied", "qwen2-untied", "deepseek-v2-experts"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    with load(request.param, tmp_path_factory.mktemp("calibration")) as llm:
        yield llm


def windows(llm: LLM, count: int = 3) -> list[list[int]]:
    ids = llm.tokenizer.encode(TEXT)
    return [ids[i * WINDOW : (i + 1) * WINDOW] for i in range(count)]


def test_every_matrix_but_tables_and_inner_latent_ones_has_an_input(model: LLM) -> None:
    inputs = inputs_of(model.config)
    assert isinstance(model.backend, NativeBackend)
    taps = set(model.backend.tap_names())
    assert {key.partition("@")[0] for key in inputs.values()} <= taps
    package = model.package_path
    assert package is not None
    with open_source(package) as source:
        without = {
            name
            for name, tensor in source.tensors.items()
            if len(tensor.shape) == 2 and name not in inputs and not name.endswith(".router.weight")
        }
    inner = ("attn.k_b.weight", "attn.v_b.weight", "attn.q_b.weight", "embed.weight")
    assert all(name.endswith(inner) for name in without)


def test_statistics_are_those_of_the_tapped_inputs(model: LLM) -> None:
    parts = windows(model)
    found = gather(model, parts, outer=True, sample=True)
    tapped = []
    for part in parts:

        def work(backend: object, blocks: list[int], part: list[int] = part) -> np.ndarray:
            assert isinstance(backend, NativeBackend)
            piece = Slice(tokens=part, past=0, block_table=blocks, logits="all")
            return backend.forward_with_taps([piece], ["layers.0.attn_norm"])[1]["layers.0.attn_norm"].copy()

        tapped.append(model.engine.borrow(2, work))
    rows = np.concatenate(tapped).astype(np.float64)
    entry = found.found["layers.0.attn_norm"]
    assert entry.count == len(rows) == 3 * WINDOW
    np.testing.assert_allclose(entry.mean_absolute, np.abs(rows).mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(entry.importance, (rows**2).mean(axis=0), rtol=1e-6)
    assert entry.hessian is not None
    np.testing.assert_allclose(entry.hessian, rows.T @ rows / len(rows), rtol=1e-4, atol=1e-6)
    assert len(entry.rows) == 3 * WINDOW


def test_experts_see_the_tokens_that_were_routed_to_them(tmp_path: Path) -> None:
    with load("deepseek-v2-experts", tmp_path) as llm:
        found = gather(llm, windows(llm)).found
        moe = llm.config.moe
        assert moe is not None
        layer = next(i for i in range(llm.config.num_layers) if llm.config.has_experts(i))
        for kind in ("mlp_norm", "experts"):
            counts = [found[f"layers.{layer}.{kind}@{expert}"].count for expert in range(moe.num_experts)]
            assert sum(counts) == 3 * WINDOW * moe.experts_per_token


def test_a_percentile_caps_each_column(tmp_path: Path) -> None:
    with load("llama-tied", tmp_path) as llm:
        plain, capped = gather(llm, windows(llm)), gather(llm, windows(llm), percentile=95)
        key = "layers.0.attn"
        assert (capped.found[key].importance <= plain.found[key].importance).all()
        assert (capped.found[key].importance < plain.found[key].importance).any()
        with pytest.raises(UsageError, match="the percentile is 50; it must be from 90 to below 100"):
            gather(llm, windows(llm), percentile=50)


def test_a_short_text_is_refused_with_its_length(model: LLM) -> None:
    with pytest.raises(UsageError, match=r"the calibration text has \d+ tokens; at least 512 are needed"):
        calibration_tokens(model, "too short")


def test_a_long_text_is_used_all_over(model: LLM) -> None:
    chosen = calibration_tokens(model, TEXT, limit=4 * WINDOW)
    assert len(chosen) == 4
    assert chosen[0] == model.tokenizer.encode(TEXT)[:WINDOW]
    assert chosen[-1] == model.tokenizer.encode(TEXT[-16 * WINDOW :])[:WINDOW]


def test_a_text_that_is_not_long_is_used_whole(model: LLM) -> None:
    ids = model.tokenizer.encode(TEXT)
    chosen = calibration_tokens(model, TEXT)
    assert len(chosen) == len(ids) // WINDOW
    assert chosen[-1] == ids[(len(chosen) - 1) * WINDOW :][:WINDOW]


def test_scales_change_no_answer_where_nothing_is_rounded(model: LLM, tmp_path: Path) -> None:
    package = model.package_path
    assert package is not None
    ids = model.tokenizer.encode(TEXT)
    with open_source(package) as source:
        scales = find_scales(source, gather(model, windows(model), sample=True), lambda _: "q4")
        assert scales.columns
        scaled = ScaledSource(source, scales.rows, scales.columns)
        write_package(scaled, tmp_path / "s", name="s", schemes=lambda *_: "f32", rounding=LeastError())
    with LLM.load(tmp_path / "s", context=WINDOW, threads=1) as other:
        # Scaled values are rounded anew where they enter the KV cache, which holds halves.
        assert divergence(other, model, ids, WINDOW, limit=3).mean_kl < 1e-5


def test_a_model_does_not_diverge_from_itself(model: LLM) -> None:
    ids = model.tokenizer.encode(TEXT)
    found = divergence(model, model, ids, WINDOW, limit=2)
    assert found.mean_kl == 0.0
    assert found.perplexity == found.reference_perplexity
    assert found.tokens == 2 * WINDOW
    with pytest.raises(UsageError, match="less than one window of 64"):
        divergence(model, model, ids[:10], WINDOW)


def test_inputs_that_are_copied_in_pieces_are_the_same(model: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gather(model, windows(model), outer=True, sample=True)
    monkeypatch.setattr("edgeseek.calibration.statistics._TAP_BYTES", 1)
    pieces = gather(model, windows(model), outer=True, sample=True)
    for key, entry in whole.found.items():
        other = pieces.found[key]
        assert other.count == entry.count
        assert (other.rows == entry.rows).all()
        np.testing.assert_allclose(other.square, entry.square, rtol=1e-6)
        np.testing.assert_allclose(other.outer, entry.outer, rtol=1e-3, atol=1e-3)  # type: ignore[arg-type]

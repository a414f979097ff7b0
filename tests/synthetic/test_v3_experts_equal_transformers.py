"""The reference for V3's routing, which the core is held against, is what transformers computes.

See `test_experts_equal_the_reference.py` for the other half.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.make_models.tiny_experts import CASES, TinyExperts, experts_output, route, tensors

pytestmark = pytest.mark.reference
TOKENS = 64


@pytest.mark.parametrize("name", ["corrected-groups", "corrected-unnormalized"])
def test_routing_and_outputs_are_those_of_transformers(name: str) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    case = CASES[name]
    prefix = "model.layers.1.mlp."
    weights = {
        key.removeprefix(prefix): value for key, value in tensors(case).items() if key.startswith(prefix)
    }
    module = _module(case, weights)
    rows = np.random.RandomState(8).standard_normal((TOKENS, case.hidden_size)).astype(np.float32)
    with torch.no_grad():
        theirs = module(torch.from_numpy(rows)[None]).numpy()[0]
        *_, their_weights, their_ids = _gate(module, torch.from_numpy(rows))
    doubles = {key: value.astype(np.float64) for key, value in weights.items()}
    ours = np.stack([route(case, doubles, "gate.", row)[0] for row in rows.astype(np.float64)])
    scattered = np.zeros_like(ours)
    np.put_along_axis(scattered, their_ids.numpy(), their_weights.numpy().astype(np.float64), axis=1)
    np.testing.assert_allclose(scattered, ours, rtol=1e-5, atol=1e-6)
    want = experts_output(case, doubles, "", rows.astype(np.float64), ours)
    np.testing.assert_allclose(theirs, want, rtol=1e-4, atol=1e-5)


def _module(case: TinyExperts, weights: Mapping[str, npt.NDArray[np.float32]]) -> Any:
    """transformers' module with the weights of `case`."""
    import torch
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE

    keys = (
        "hidden_size",
        "moe_intermediate_size",
        "n_routed_experts",
        "n_shared_experts",
        "num_experts_per_tok",
    )
    config = case.config()
    module = DeepseekV3MoE(
        DeepseekV3Config(
            **{key: config[key] for key in (*keys, "n_group", "topk_group", "norm_topk_prob")},
            routed_scaling_factor=config.get("routed_scaling_factor", 1.0),
        )
    ).eval()
    state = {key: torch.from_numpy(value) for key, value in weights.items() if not key.startswith("experts.")}
    each = [
        {
            part: torch.from_numpy(weights[f"experts.{i}.{part}_proj.weight"])
            for part in ("gate", "up", "down")
        }
        for i in range(case.experts)
    ]
    # Releases from 5 on keep the experts as two stacks, older ones as modules.
    if hasattr(module.experts, "gate_up_proj"):
        state["experts.gate_up_proj"] = torch.stack([torch.cat([e["gate"], e["up"]]) for e in each])
        state["experts.down_proj"] = torch.stack([e["down"] for e in each])
    else:
        for i, expert in enumerate(each):
            state |= {f"experts.{i}.{part}_proj.weight": value for part, value in expert.items()}
    module.load_state_dict(state)
    return module


def _gate(module: Any, rows: Any) -> tuple[Any, ...]:
    """The weights and ids of the chosen experts, last in what the router gives, in either order."""
    *_, first, second = module.gate(rows)
    return (second, first) if first.dtype.is_floating_point is False else (first, second)

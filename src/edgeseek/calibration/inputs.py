"""Which of the model's inputs each matrix multiplies, by the names that the core's taps have.

Several matrices share an input; an expert's is the part of the tokens that is routed to it, written
`TAP@EXPERT`. Matrices whose input no tap shows (latent attention's inner ones) have none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from edgeseek.architectures import ModelConfig, expected_tensors

_PLAIN = {
    "attn.q": "attn_norm",
    "attn.k": "attn_norm",
    "attn.v": "attn_norm",
    "attn.q_a": "attn_norm",
    "attn.kv_a": "attn_norm",
    "attn.o": "attn",
    "mlp.gate": "mlp_norm",
    "mlp.up": "mlp_norm",
    "mlp.down": "mlp",
    "mlp.shared.gate": "mlp_norm",
    "mlp.shared.up": "mlp_norm",
    "mlp.shared.down": "mlp",
}
_EXPERT = re.compile(r"mlp\.experts\.(\d+)\.(gate|up|down)")
_LAYER = re.compile(r"(layers\.\d+\.)(.+)\.weight")


def inputs_of(config: ModelConfig) -> Mapping[str, str]:
    """The input of each matrix that has one, by package name."""
    found = {"embed.weight" if config.tied_embeddings else "head.weight": "final_norm"}
    for name, (shape, _) in expected_tensors(config).items():
        match = _LAYER.fullmatch(name)
        if match is None or len(shape) != 2:
            continue
        layer, part = match.groups()
        expert = _EXPERT.fullmatch(part)
        if part in _PLAIN:
            found[name] = layer + _PLAIN[part]
        elif expert is not None:
            found[name] = f"{layer}{'experts' if expert[2] == 'down' else 'mlp_norm'}@{expert[1]}"
    return found


def taps_for(keys: list[str]) -> list[str]:
    """The core's taps that these inputs are read from."""
    taps = dict.fromkeys(key.partition("@")[0] for key in keys)
    for key in keys:
        if "@" in key:
            taps[key[: key.index(".", len("layers."))] + ".routing"] = None
    return [*taps]

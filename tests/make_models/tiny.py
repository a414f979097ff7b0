"""Tiny random models in the Hugging Face folder format, the same bytes on every machine.

`write(CASES["llama-tied"], folder)` makes config.json, model.safetensors (float32), tokenizer.json,
tokenizer_config.json (with a chat template) and generation_config.json from the case's seed, with numpy and
safetensors only. `tests/fixtures/tiny_logits` holds what transformers computes for each of them.

Weights are drawn so that every part matters: norm gains around one, biases about as large as what they
are added to, matrices scaled by their inputs so that activations neither vanish nor explode. Attention
scores stay as small as those of trained models, since the KV cache rounds keys and values to binary16. The
draws come from numpy's legacy RandomState, whose stream is frozen; `Generator` streams may change between
releases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file

from tests.make_models.latent import Experts, Latent

SPECIALS = ("<|bos|>", "<|eos|>", "<|user|>", "<|assistant|>")
VOCAB_SIZE = 320
CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message.role }}|>{{ message.content }}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


_CLASSES: Mapping[str, str] = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}


@dataclass(frozen=True)
class TinyModel:
    """One configuration: the keys of its config.json that differ from `_base_config`, and its seed."""

    name: str
    architecture: str
    seed: int
    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    layers: int = 2
    tied: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)
    latent: Latent | None = None
    experts: Experts | None = None

    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        llama = self.architecture == "llama"
        config: dict[str, Any] = {
            "architectures": [_CLASSES[self.architecture]],
            "model_type": self.architecture,
            "vocab_size": VOCAB_SIZE,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5 if llama else 1e-6,
            "rope_theta": 10000.0,
            "tie_word_embeddings": self.tied,
            "torch_dtype": "float32",
            "bos_token_id": 0,
            "eos_token_id": 1,
        }
        if self.architecture != "qwen2":
            config["attention_bias"] = self.attention_bias
        if llama:
            config["mlp_bias"] = self.mlp_bias
        if self.latent is not None:
            # Without experts: every layer is one of the first dense ones.
            experts = {"first_k_dense_replace": self.layers}
            config |= {**self.latent.config(), **(self.experts.config() if self.experts else experts)}
        return {**config, **self.extra}


def _by_name(*models: TinyModel) -> dict[str, TinyModel]:
    return {model.name: model for model in models}


#: RoPE scalings with an original context of 16 positions, beyond which their frequencies are extended.
_SCALINGS: tuple[tuple[int, str, Mapping[str, Any]], ...] = (
    (
        31,
        "llama3",
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    (32, "yarn", {"factor": 8.0, "original_max_position_embeddings": 16, "beta_fast": 4.0}),
    (
        33,
        "longrope",
        {
            "original_max_position_embeddings": 16,
            "short_factor": [1.0 + 0.02 * i for i in range(16)],
            "long_factor": [1.0 + 0.4 * i for i in range(16)],
        },
    ),
)

#: V2-Lite's YaRN, with a shorter original context.
_DEEPSEEK_YARN: Mapping[str, Any] = {
    "type": "yarn",
    "factor": 40,
    "original_max_position_embeddings": 16,
    "beta_fast": 32,
    "beta_slow": 1,
    "mscale": 0.707,
    "mscale_all_dim": 0.707,
}


def _latent_case(
    name: str, seed: int, hidden: int, wide: int, heads: int, latent: Latent, **more: Any
) -> TinyModel:
    family = name[: len("deepseek-vN")].replace("-", "_")
    return TinyModel(name, family, seed, hidden, wide, heads, heads, latent.rotated, latent=latent, **more)


#: Latent attention: plain and low-rank queries (of a rank below and above the hidden size), biases, YaRN.
_LATENT_CASES = (
    _latent_case("deepseek-v2-plain-queries", 41, 96, 144, 4, Latent(48, 32, 16, 32)),
    _latent_case(
        "deepseek-v2-low-rank-queries",
        42,
        96,
        112,
        3,
        Latent(32, 16, 32, 48, query_rank=40),
        attention_bias=True,
    ),
    _latent_case(
        "deepseek-v2-yarn",
        43,
        64,
        96,
        4,
        Latent(64, 32, 32, 16, query_rank=72),
        extra={"max_position_embeddings": 640, "rope_scaling": _DEEPSEEK_YARN},
    ),
    _latent_case("deepseek-v3-dense", 44, 64, 96, 2, Latent(32, 48, 16, 32, query_rank=48), layers=3),
    _latent_case(
        "deepseek-v2-experts",
        45,
        64,
        96,
        4,
        Latent(48, 32, 16, 32),
        layers=3,
        experts=Experts({"topk_method": "greedy", "norm_topk_prob": False, "routed_scaling_factor": 1.0}),
    ),
    _latent_case(
        "deepseek-v2-expert-groups",
        46,
        64,
        96,
        2,
        Latent(32, 16, 16, 16, query_rank=32),
        experts=Experts(
            {
                "topk_method": "group_limited_greedy",
                "n_group": 4,
                "topk_group": 2,
                "norm_topk_prob": False,
                "routed_scaling_factor": 4.0,
            },
            per_token=3,
        ),
    ),
    # As transformers writes it: without topk_method and scoring_func, which the family implies.
    _latent_case(
        "deepseek-v3-experts",
        47,
        64,
        96,
        4,
        Latent(32, 32, 16, 32, query_rank=48),
        layers=3,
        experts=Experts(
            {"n_group": 2, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5}, count=12
        ),
    ),
)

#: Every tiny model of the tests. Sizes are odd on purpose: widths that are no multiple of 32 or 256,
#: query widths that differ from the hidden size, one, some and all key/value heads.
CASES: Mapping[str, TinyModel] = _by_name(
    TinyModel("llama-tied", "llama", 11, 64, 96, heads=4, kv_heads=2, head_dim=16, tied=True),
    TinyModel("llama-untied", "llama", 12, 96, 200, heads=2, kv_heads=2, head_dim=64, layers=3),
    TinyModel("llama-one-kv-head", "llama", 13, 128, 144, heads=4, kv_heads=1, head_dim=128),
    TinyModel(
        "llama-biases",
        "llama",
        14,
        96,
        112,
        heads=3,
        kv_heads=3,
        head_dim=32,
        attention_bias=True,
        mlp_bias=True,
    ),
    TinyModel(
        "llama-linear-rope",
        "llama",
        15,
        80,
        128,
        heads=4,
        kv_heads=2,
        head_dim=80,
        extra={"rope_scaling": {"type": "linear", "factor": 4.0}},
    ),
    TinyModel(
        "llama-rope-parameters",
        "llama",
        16,
        64,
        96,
        heads=2,
        kv_heads=1,
        head_dim=96,
        tied=True,
        extra={"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 50000.0}},
    ),
    *(
        TinyModel(
            f"llama-{kind}-rope",
            "llama",
            seed,
            64,
            96,
            heads=2,
            kv_heads=1,
            head_dim=32,
            # The prompts are longer than this: every scaling is at work.
            extra={"max_position_embeddings": 128, "rope_scaling": {"rope_type": kind, **scaling}},
        )
        for seed, kind, scaling in _SCALINGS
    ),
    TinyModel(
        "llama-dynamic-rope",
        "llama",
        30,
        64,
        96,
        heads=2,
        kv_heads=1,
        head_dim=32,
        extra={"max_position_embeddings": 16, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
    ),
    TinyModel("qwen2-tied", "qwen2", 21, 64, 160, heads=4, kv_heads=2, head_dim=16, tied=True),
    TinyModel("qwen2-untied", "qwen2", 22, 320, 352, heads=5, kv_heads=1, head_dim=64),
    TinyModel(
        "qwen2-wide-heads",
        "qwen2",
        23,
        256,
        288,
        heads=2,
        kv_heads=2,
        head_dim=128,
        extra={"rope_theta": 1000000.0},
    ),
    TinyModel(
        "qwen2-sliding-window",
        "qwen2",
        24,
        64,
        96,
        heads=4,
        kv_heads=2,
        head_dim=16,
        layers=3,
        extra={"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    TinyModel("qwen3-tied", "qwen3", 41, 64, 96, heads=4, kv_heads=2, head_dim=32, tied=True),
    TinyModel("qwen3-biases", "qwen3", 42, 96, 128, heads=3, kv_heads=1, head_dim=48, attention_bias=True),
    # DeepSeek-R1-0528-Qwen3-8B's scaling, smaller: its attention factor is 1 where 0.1 ln 4 + 1 is usual.
    TinyModel(
        "qwen3-yarn-rope",
        "qwen3",
        43,
        64,
        96,
        heads=4,
        kv_heads=1,
        head_dim=64,
        extra={
            "max_position_embeddings": 128,
            "rope_theta": 1000000.0,
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32,
                "attention_factor": 1.0,
            },
        },
    ),
    TinyModel(
        "qwen3-sliding-window",
        "qwen3",
        44,
        64,
        96,
        heads=2,
        kv_heads=2,
        head_dim=16,
        extra={
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ),
    *_LATENT_CASES,
)


def tensors(model: TinyModel) -> dict[str, npt.NDArray[np.float32]]:
    """All tensors of `model`, float32, in the order in which they are drawn."""
    random = np.random.RandomState(model.seed)
    out: dict[str, npt.NDArray[np.float32]] = {}

    def matrix(name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        out[name] = (random.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32)

    def vector(name: str, size: int, mean: float, spread: float) -> None:
        out[name] = (mean + spread * random.standard_normal(size)).astype(np.float32)

    hidden, wide = model.hidden_size, model.intermediate_size
    queries, keys = model.heads * model.head_dim, model.kv_heads * model.head_dim
    qkv_bias = model.attention_bias or model.architecture == "qwen2"
    matrix("model.embed_tokens.weight", VOCAB_SIZE, hidden, gain=np.sqrt(hidden))
    for layer in range(model.layers):
        prefix = f"model.layers.{layer}."
        vector(prefix + "input_layernorm.weight", hidden, 1.0, 0.2)
        if model.latent is not None:
            model.latent.draw(
                prefix + "self_attn.", model.heads, hidden, model.attention_bias, matrix, vector
            )
        for name, rows in (("q", queries), ("k", keys), ("v", keys)) if model.latent is None else ():
            matrix(f"{prefix}self_attn.{name}_proj.weight", rows, hidden)
            if qkv_bias:
                vector(f"{prefix}self_attn.{name}_proj.bias", rows, 0.0, 0.5)
        if model.architecture == "qwen3":
            vector(prefix + "self_attn.q_norm.weight", model.head_dim, 1.0, 0.3)
            vector(prefix + "self_attn.k_norm.weight", model.head_dim, 1.0, 0.3)
        width = queries if model.latent is None else model.heads * model.latent.value
        matrix(prefix + "self_attn.o_proj.weight", hidden, width)
        if model.attention_bias:
            vector(prefix + "self_attn.o_proj.bias", hidden, 0.0, 0.5)
        vector(prefix + "post_attention_layernorm.weight", hidden, 1.0, 0.2)
        if model.experts is not None and layer >= model.experts.first_layer:
            corrected = model.architecture == "deepseek_v3"
            model.experts.draw(prefix + "mlp.", hidden, corrected, matrix, vector)
            continue
        for name, rows, columns in (("gate", wide, hidden), ("up", wide, hidden), ("down", hidden, wide)):
            matrix(f"{prefix}mlp.{name}_proj.weight", rows, columns, gain=1.5)
            if model.mlp_bias:
                vector(f"{prefix}mlp.{name}_proj.bias", rows, 0.0, 0.5)
    vector("model.norm.weight", hidden, 1.0, 0.2)
    if not model.tied:
        matrix("lm_head.weight", VOCAB_SIZE, hidden, gain=4.0)
    return out


def tokenizer_json() -> dict[str, Any]:
    """A byte-level BPE of `VOCAB_SIZE` entries: the specials, the 256 bytes, then merges of common pairs."""
    alphabet = _byte_alphabet()
    vocab = {token: i for i, token in enumerate((*SPECIALS, *alphabet))}
    space = alphabet[32]
    merges: list[tuple[str, str]] = []
    words = (f"{space}the", f"{space}and", f"{space}of", f"{space}to", "ing", "er", "on", "re", "ed", "is")
    more = (f"{space}is", f"{space}in", f"{space}a", "tion", "es", "en", "al", "or", "ar", "ly", "th", "st")
    long_words = (f"{space}model", f"{space}token", f"{space}self", "return", "import", "print", "class")
    for word in (*words, *more, *long_words, "def", "for", "while", "else", "None", "True", "False"):
        left = word[0]
        for right in word[1:]:
            if left + right not in vocab and len(vocab) < VOCAB_SIZE:
                merges.append((left, right))
                vocab[left + right] = len(vocab)
            left += right
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i, token in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocab,
            "merges": [list(pair) for pair in merges],
        },
    }


def _byte_alphabet() -> list[str]:
    """The printable stand-ins that byte-level BPE uses for the bytes 0..255 (GPT-2's mapping)."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def write(
    model: TinyModel, folder: Path, changed: Mapping[str, npt.NDArray[np.float32]] | None = None
) -> Path:
    """Make the folder of `model` (with the tensors of `changed` put in place of its own) and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        "config.json": model.config(),
        "tokenizer.json": tokenizer_json(),
        "tokenizer_config.json": {
            "bos_token": SPECIALS[0],
            "eos_token": SPECIALS[1],
            "tokenizer_class": "PreTrainedTokenizerFast",
            "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {"bos_token_id": 0, "eos_token_id": 1},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content, indent=1, ensure_ascii=False), encoding="utf-8")
    save_file({**tensors(model), **(changed or {})}, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def prompt_ids(model: TinyModel, length: int) -> list[int]:
    """`length` token ids, the same for every run, without the special tokens."""
    random = np.random.RandomState(1000 + model.seed)
    return [int(i) for i in random.randint(len(SPECIALS), VOCAB_SIZE, size=length)]

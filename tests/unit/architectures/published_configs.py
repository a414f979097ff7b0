"""What the config.json of DeepSeek's published models says, as far as it bears on the computation.

From the models' repositories on the Hugging Face hub; the parameter counts are half of the `total_size` of
their index files, which store two bytes a weight.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LLAMA: Mapping[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "pretraining_tp": 1,
    "tie_word_embeddings": False,
    "use_cache": True,
}
_CODER: Mapping[str, Any] = {
    **_LLAMA,
    "bos_token_id": 32013,
    "eos_token_id": 32014,
    "hidden_size": 2048,
    "intermediate_size": 5504,
    "max_position_embeddings": 16384,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "num_key_value_heads": 16,
    "rms_norm_eps": 1e-06,
    "rope_scaling": {"factor": 4.0, "type": "linear"},
    "rope_theta": 100000,
    "vocab_size": 32256,
}
_R1_QWEN: Mapping[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151643,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "num_hidden_layers": 28,
    "rms_norm_eps": 1e-06,
    "rope_theta": 10000,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "use_mrope": False,
    "use_sliding_window": False,
}
#: Hub name -> (config.json, parameters).
PUBLISHED: Mapping[str, tuple[Mapping[str, Any], int]] = {
    "deepseek-ai/deepseek-coder-1.3b-base": (_CODER, 1_346_471_936),
    "deepseek-ai/deepseek-coder-1.3b-instruct": ({**_CODER, "eos_token_id": 32021}, 1_346_471_936),
    "deepseek-ai/deepseek-llm-7b-chat": (
        {
            **_LLAMA,
            "bos_token_id": 100000,
            "eos_token_id": 100001,
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "max_position_embeddings": 4096,
            "num_attention_heads": 32,
            "num_hidden_layers": 30,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-06,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "vocab_size": 102400,
        },
        6_910_365_696,
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Llama-8B": (
        {
            **_LLAMA,
            "attention_bias": False,
            "mlp_bias": False,
            "bos_token_id": 128000,
            "eos_token_id": 128001,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 131072,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "rope_theta": 500000.0,
            "vocab_size": 128256,
        },
        8_030_261_248,
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": (
        {
            **_R1_QWEN,
            "hidden_size": 1536,
            "intermediate_size": 8960,
            "max_window_layers": 21,
            "num_attention_heads": 12,
            "num_key_value_heads": 2,
            "vocab_size": 151936,
        },
        1_777_088_000,
    ),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": (
        {
            **_R1_QWEN,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "max_window_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "vocab_size": 152064,
        },
        7_615_616_512,
    ),
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": (
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 151643,
            "eos_token_id": 151645,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 12288,
            "max_position_embeddings": 131072,
            "max_window_layers": 36,
            "num_attention_heads": 32,
            "num_hidden_layers": 36,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06,
            "rope_scaling": {
                "attn_factor": 0.8782488562869419,
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "rope_type": "yarn",
            },
            "rope_theta": 1000000,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
        8_190_735_360,
    ),
}

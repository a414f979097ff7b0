"""A Hugging Face folder as a Checkpoint: config.json, safetensors shards, tokenizer and templates.

Owns which files make up a checkpoint and which chat template wins: chat_template.jinja, then
chat_template.json, then the one in tokenizer_config.json, as transformers does.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from edgeseek.checkpoints.base import CheckpointKind, LazyTensor, TextAssets
from edgeseek.checkpoints.digest import checkpoint_digest
from edgeseek.checkpoints.fp8 import with_scales
from edgeseek.checkpoints.json_files import read_file, read_json_object
from edgeseek.checkpoints.mapping import MappedTensor
from edgeseek.checkpoints.safetensors import SafetensorsFile
from edgeseek.errors import CheckpointFormatError, UnsupportedCheckpointError

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
TEMPLATE_TEXT = "chat_template.jinja"
TEMPLATE_JSON = "chat_template.json"
#: Every file but the weights that a checkpoint is read from.
SIDE_FILES = (
    CONFIG,
    GENERATION_CONFIG,
    TOKENIZER,
    TOKENIZER_CONFIG,
    TEMPLATE_TEXT,
    TEMPLATE_JSON,
    INDEX,
)


class FolderCheckpoint:
    """An opened folder; see `checkpoints.base.Checkpoint` for the members.

    Raises CheckpointFormatError naming the missing or damaged file, UnsupportedCheckpointError for a
    folder whose weights are not safetensors. Without `weights` only the other files are looked at, and
    `tensors` is empty.
    """

    kind: CheckpointKind = "huggingface"

    def __init__(self, path: Path, *, weights: bool = True) -> None:
        self.path = path
        if not (path / CONFIG).is_file():
            raise CheckpointFormatError(
                f"{path} holds no {CONFIG}; give the path of a Hugging Face model folder or of a .gguf file"
            )
        self.raw_config: Mapping[str, Any] = MappingProxyType(read_json_object(path / CONFIG))
        self._shards: list[SafetensorsFile] = []
        try:
            self.tensors: Mapping[str, LazyTensor] = MappingProxyType(
                with_scales(self._open_weights()) if weights else {}
            )
        except BaseException:
            self.close()
            raise

    @cached_property
    def text_assets(self) -> TextAssets:
        """The text files as stored. Raises CheckpointFormatError if one is damaged."""
        tokenizer = self.path / TOKENIZER
        tokenizer_config = self._optional_json(TOKENIZER_CONFIG)
        return TextAssets(
            tokenizer_json=read_file(tokenizer) if tokenizer.is_file() else None,
            tokenizer_config=MappingProxyType(tokenizer_config),
            chat_template=self._chat_template(tokenizer_config),
            generation_config=MappingProxyType(self._optional_json(GENERATION_CONFIG)),
        )

    def digest(self) -> str:
        """sha256 hex over names, sizes and contents of the shards and the side files."""
        files = [shard.path for shard in self._shards]
        files += [self.path / name for name in SIDE_FILES if (self.path / name).is_file()]
        return checkpoint_digest(files)

    def close(self) -> None:
        """Drop the mappings of all shards."""
        for shard in self._shards:
            shard.close()

    def __enter__(self) -> FolderCheckpoint:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open_weights(self) -> dict[str, MappedTensor]:
        if (self.path / SINGLE).is_file():
            return dict(self._open_shard(SINGLE).tensors)
        if (self.path / INDEX).is_file():
            return self._open_indexed()
        names = sorted(file.name for file in self.path.glob("*.safetensors"))
        if len(names) == 1:
            return dict(self._open_shard(names[0]).tensors)
        if names:
            raise CheckpointFormatError(
                f"{self.path} holds {len(names)} safetensors shards ({names[0]}, ...) and no {INDEX}; "
                "download the index too"
            )
        pickled = sorted(
            file.name for pattern in ("*.bin", "*.pt", "*.pth") for file in self.path.glob(pattern)
        )
        if pickled:
            raise UnsupportedCheckpointError(
                f"{self.path} holds its weights only as {pickled[0]}, a pickle, which runs code when read; "
                f"use the safetensors or GGUF version of the model"
            )
        raise CheckpointFormatError(
            f"{self.path} holds no weights; {SINGLE} or {INDEX} with its shards is needed"
        )

    def _open_shard(self, name: str) -> SafetensorsFile:
        shard = SafetensorsFile(self.path / name)
        self._shards.append(shard)
        return shard

    def _open_indexed(self) -> dict[str, MappedTensor]:
        index = self.path / INDEX
        weight_map = shard_names(read_json_object(index), str(index))
        tensors: dict[str, MappedTensor] = {}
        for name in sorted(set(weight_map.values())):
            if not (self.path / name).is_file():
                raise CheckpointFormatError(
                    f"{self.path} lacks the shard {name}, which {INDEX} names; download that file too"
                )
            shard = self._open_shard(name)
            for tensor in shard.tensors:
                if tensor in tensors:
                    raise CheckpointFormatError(
                        f"tensor {tensor!r} is in two shards of {self.path}, "
                        f"{tensors[tensor].file.path.name} and {name}; download them again"
                    )
            tensors.update(shard.tensors)
        for tensor, name in weight_map.items():
            if tensor not in tensors or tensors[tensor].file.path.name != name:
                raise CheckpointFormatError(
                    f"{index} says that {name} holds tensor {tensor!r}, and it does not; download it again"
                )
        return tensors

    def _optional_json(self, name: str) -> dict[str, Any]:
        path = self.path / name
        return read_json_object(path) if path.is_file() else {}

    def _chat_template(self, tokenizer_config: Mapping[str, Any]) -> str | None:
        text = self.path / TEMPLATE_TEXT
        if text.is_file():
            try:
                return read_file(text).decode("utf-8")
            except UnicodeDecodeError as error:
                raise CheckpointFormatError(
                    f"{text} is not UTF-8 at byte {error.start}; download it again"
                ) from error
        if (self.path / TEMPLATE_JSON).is_file():
            source = self.path / TEMPLATE_JSON
            return _default_template(read_json_object(source).get("chat_template"), source)
        return _default_template(tokenizer_config.get("chat_template"), self.path / TOKENIZER_CONFIG)


def shard_names(index: Mapping[str, Any], what: str) -> dict[str, str]:
    """tensor name -> shard file name of a shard index; `what` names it in errors.

    Raises CheckpointFormatError where the map is absent or a shard is no plain file name.
    """
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointFormatError(f"{what} has no weight_map of tensor names to shards; download it again")
    for tensor, name in weight_map.items():
        plain = isinstance(name, str) and name.endswith(".safetensors") and not set(name) & set("/\\\0")
        if not plain:
            raise CheckpointFormatError(
                f"{what} places tensor {tensor!r} in {name!r}, which is no safetensors file beside it; "
                "download it again"
            )
    return weight_map


def _default_template(value: Any, source: Path) -> str | None:
    """The template itself, or of a list of named ones that called "default", else the first."""
    if value is None or isinstance(value, str):
        return value or None
    named: dict[str, str] = {}
    for entry in value if isinstance(value, list) else [None]:
        name, template = (
            (entry.get("name"), entry.get("template")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(name, str) or not isinstance(template, str):
            raise CheckpointFormatError(
                f"chat_template in {source} is neither text nor a list of named texts; download it again"
            )
        named[name] = template
    return named.get("default", next(iter(named.values()), None))

"""Every error that edgeseek raises on purpose, as one tree.

EdgeseekError                      exit code 1
├── UsageError                     exit code 2: an option, a name or a prompt the user can correct
│   ├── UnknownModelError          no such path, package or catalogue name
│   ├── PromptTooLongError         more prompt tokens than the context holds
│   ├── ContextTooLongError        a larger context than the model knows
│   └── MissingExtraError          an optional dependency is not installed
├── CheckpointError                what the world ships cannot be read
│   ├── CheckpointFormatError      truncated, wrong magic, offsets beyond the file, malformed header
│   ├── UnsupportedCheckpointError an architecture, tensor type or RoPE scaling we do not know
│   └── MissingTensorError         a tensor the architecture needs is absent or has another shape
├── PackageError                   our own on-disk model cannot be used
│   ├── PackageFormatError         wrong magic or version, offsets or shapes that contradict the file
│   └── PackageDamagedError        contents differ from the digests in edgeseek.json
├── DownloadError                  network, status or digest failure of a pull
├── StorageError                   disk full, no permission, a target that exists
├── DoesNotFitError                the memory plan exceeds the budget
├── TokenizerError                 vocabulary, merges or pre-tokenizer we cannot build
│   └── ChatTemplateError          the template is missing, malformed or raised
├── OverloadedError                refused or ended for want of memory or room; may succeed later
└── RuntimeFailure                 the native core or a backend failed while running

A message says what was found and what to do about it. The command line prints it on one line and
exits with `exit_code`.
"""

from __future__ import annotations


class EdgeseekError(Exception):
    """Base of the tree; `exit_code` is what the command line exits with."""

    exit_code = 1


class UsageError(EdgeseekError):
    """The caller can correct this: an unknown option, a bad value, a missing name."""

    exit_code = 2


class UnknownModelError(UsageError):
    """A model name that is neither a path, a pulled package nor a catalogue entry."""


class PromptTooLongError(UsageError):
    """The prompt does not fit the context; carries both numbers, in tokens."""

    def __init__(self, prompt_tokens: int, context: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.context = context
        super().__init__(
            f"the prompt has {prompt_tokens} tokens and the context holds {context}; "
            f"shorten the prompt or load the model with a larger --context"
        )


class ContextTooLongError(UsageError):
    """A context was asked for that the model does not know; carries both numbers, in tokens."""

    def __init__(self, context: int, max_context: int) -> None:
        self.context = context
        self.max_context = max_context
        super().__init__(
            f"a context of {context} tokens was asked for and the model knows {max_context}; "
            f"give {max_context} or fewer"
        )


class MissingExtraError(UsageError):
    """An optional dependency is missing; names the `pip install` line that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}; install it with: pip install 'edgeseek[{extra}]'"
        )


class CheckpointError(EdgeseekError):
    """A checkpoint cannot be read."""


class CheckpointFormatError(CheckpointError):
    """The file is truncated, malformed or not what its name says."""


class UnsupportedCheckpointError(CheckpointError):
    """Well formed, but of a kind we do not run; names what was found and what we know."""


class MissingTensorError(CheckpointError):
    """A needed tensor is absent or has an unexpected shape."""


class PackageError(EdgeseekError):
    """A package folder cannot be used."""


class PackageFormatError(PackageError):
    """The package's header contradicts itself or its files."""


class PackageDamagedError(PackageError):
    """The package's bytes differ from their recorded digests."""


class DownloadError(EdgeseekError):
    """A download failed or delivered other bytes than expected."""


class StorageError(EdgeseekError):
    """Writing failed: no space, no permission, or the target exists."""


class DoesNotFitError(EdgeseekError):
    """The model does not fit the memory budget; both figures are in bytes."""

    def __init__(self, message: str, *, needed: int, available: int) -> None:
        self.needed = needed
        self.available = available
        super().__init__(message)


class TokenizerError(EdgeseekError):
    """The vocabulary, merges or pre-tokenizer cannot be turned into a tokenizer."""


class ChatTemplateError(TokenizerError):
    """The chat template is missing, malformed, or refused the messages."""


class OverloadedError(EdgeseekError):
    """A request was not taken, or was ended after it had `started`, because the machine has no room for it.

    It may succeed later.
    """

    def __init__(self, message: str, *, started: bool = False) -> None:
        self.started = started
        super().__init__(message)


class RuntimeFailure(EdgeseekError):
    """A backend failed while running."""

"""API keys: read, compared in constant time, and turned into the salt that keeps clients' prefixes apart."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection, Sequence
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from edgeseek.errors import UsageError
from edgeseek.server.errors import ApiError

#: Where the middleware leaves the salt of a request's key.
SALT = "edgeseek.salt"
_SALT_CONTEXT = b"edgeseek prefix salt\0"


def read_keys(path: Path | None, more: Sequence[str]) -> tuple[str, ...]:
    """Keys from a file, one a line, `#` begins a comment; and `more`.

    Raises UsageError for a file that cannot be read or holds no key, naming the file only.
    """
    keys = list(more)
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise UsageError(f"the key file {path} cannot be read: {why}") from None
        found = [line.strip() for line in lines if not line.lstrip().startswith("#")]
        if not any(found):
            raise UsageError(f"the key file {path} holds no key; write one a line")
        keys += found
    return tuple(dict.fromkeys(key for key in keys if key))


class Keyring:
    """The keys that are let in, as digests."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admits(self, key: bytes) -> bool:
        """Whether `key` is one of them; takes the same time for any wrong key, and looks at all."""
        digest = hashlib.sha256(key).digest()
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(digest, known)
        return found


def salt_of(key: bytes) -> bytes:
    """16 bytes that name a key without telling it; b"" for no key."""
    return hashlib.sha256(_SALT_CONTEXT + key).digest()[:16] if key else b""


class AuthMiddleware:
    """Refuses requests without a known key before their body is read; `open_paths` need none."""

    def __init__(self, app: ASGIApp, keyring: Keyring, open_paths: Collection[str]) -> None:
        self._app = app
        self._keyring = keyring
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        key = _bearer(scope)
        known = bool(self._keyring) and self._keyring.admits(key)
        if self._keyring and not known and scope["path"] not in self._open:
            what = "is not known here" if key else "is missing; send the header Authorization: Bearer KEY"
            refusal = ApiError(401, f"the API key {what}", code="invalid_api_key")
            return await refusal.response()(scope, receive, send)
        scope[SALT] = salt_of(key) if known else b""
        return await self._app(scope, receive, send)


def _bearer(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, key = bytes(value).partition(b" ")
            return key.strip() if kind.lower() == b"bearer" else b""
    return b""

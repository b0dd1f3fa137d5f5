"""Remembers validated snapshots, so that reading them back skips the validation.

These are the snapshots that this process has written or validated before. It remembers a digest of each under a secret
key. Bytes that another program has written, or that have changed since, do not match and are validated in full.
"""

from __future__ import annotations

import hashlib
import os

__all__ = ["TrustedSnapshots"]


class TrustedSnapshots:
    """The last validated snapshot of each log."""

    def __init__(self, most: int) -> None:
        """Remember at most `most` logs, those of the last additions."""
        self._most = most
        self._key = os.urandom(32)
        self._digests: dict[bytes, bytes] = {}  # birth of the log -> digest

    def digest(self, data: bytes) -> bytes:
        """Return the digest of a snapshot. O(bytes), thread-safe."""
        return hashlib.blake2b(data, digest_size=16, key=self._key).digest()

    def add(self, birth: bytes, digest: bytes) -> None:
        """Trust the snapshot of this digest as the last one of the log with this birth."""
        self._digests.pop(birth, None)
        self._digests[birth] = digest
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]

    def has_log(self, birth: bytes) -> bool:
        """Tell whether a snapshot of this log is trusted."""
        return birth in self._digests

    def trusts(self, birth: bytes, digest: bytes) -> bool:
        """Tell whether the snapshot of this digest is trusted."""
        return self._digests.get(birth) == digest

"""Which snapshots are known to hold sound values, so that they need not be looked at again when they are read back.

They are those that this process has written, from a learner that lived in it, and those that it has looked at before.
What it remembers of each is a digest under a key of its own, which nobody else has: bytes that another program has
written, or that have changed since, are not known, and are looked at whole.
"""

from __future__ import annotations

import hashlib
import os

__all__ = ["TrustedSnapshots"]


class TrustedSnapshots:
    """The last snapshot of each log that is known to be sound."""

    def __init__(self, most: int) -> None:
        """`most`: of so many logs, those that were told of last."""
        self._most = most
        self._key = os.urandom(32)
        self._digests: dict[bytes, bytes] = {}  # by birth

    def digest(self, data: bytes) -> bytes:
        """By which it is known. O(bytes), in any thread."""
        return hashlib.blake2b(data, digest_size=16, key=self._key).digest()

    def tell(self, birth: bytes, digest: bytes) -> None:
        """The snapshot of this digest is sound, and the last one of the log that began so."""
        self._digests.pop(birth, None)
        self._digests[birth] = digest
        if len(self._digests) > self._most:
            del self._digests[next(iter(self._digests))]

    def met(self, birth: bytes) -> bool:
        """Whether a snapshot of this log was told of."""
        return birth in self._digests

    def knows(self, birth: bytes, digest: bytes) -> bool:
        """Whether the snapshot of this digest is known to be sound."""
        return self._digests.get(birth) == digest

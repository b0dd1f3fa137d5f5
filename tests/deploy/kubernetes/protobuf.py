"""Kubernetes' objects in protobuf, as kubectl sends what it creates: of a Namespace and a Secret, what it may say.

The numbers are those of the fields in k8s.io/api/core/v1/generated.proto and k8s.io/apimachinery's.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

__all__ = ["MEDIA_TYPE", "decoded"]

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"


def decoded(body: bytes) -> dict[str, Any]:
    """The object. Raises ValueError for what it cannot read."""
    if not body.startswith(MAGIC):
        raise ValueError("no object in protobuf")
    unknown = dict(_fields(body[len(MAGIC) :]))
    about = {number: value.decode() for number, value in _fields(unknown[1])}
    found: dict[str, Any] = {"apiVersion": about[1], "kind": about[2], "metadata": {}}
    for number, value in _fields(unknown[2]):
        if number == 1:
            found["metadata"] = _metadata(value)
        elif about[2] == "Secret" and number == 2:
            name, data = _entry(value)
            found.setdefault("data", {})[name] = base64.b64encode(data).decode()
        elif about[2] == "Secret" and number == 3:
            found["type"] = value.decode()
        elif value and (about[2], number) != ("Namespace", 3):  # its status, which is not the client's to say
            raise ValueError(f"a {about[2]} with field {number}")
    return found


def _metadata(message: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(message):
        if number in (1, 3) and value:
            found["name" if number == 1 else "namespace"] = value.decode()
        elif number in (11, 12):
            name, text = _entry(value)
            found.setdefault("labels" if number == 11 else "annotations", {})[name] = text.decode()
        elif number != 8 and value:  # 8: a time of creation that is not set
            raise ValueError(f"metadata with field {number}")
    return found


def _entry(message: bytes) -> tuple[str, bytes]:
    """Of a map."""
    parts = dict(_fields(message))
    return parts[1].decode(), parts.get(2, b"")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Each field that is not a number other than 0."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size, at = _varint(message, at)
        if tag & 7 == 2:
            yield tag >> 3, message[at : at + size]
            at += size
        elif tag & 7 != 0 or size:
            raise ValueError(f"field {tag >> 3} of wire type {tag & 7}")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 127) << shift, shift + 7, at + 1
        if byte < 128:
            return value, at

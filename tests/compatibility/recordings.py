"""Reads, writes and compares recordings."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "brief", "differences", "plain", "read_json", "without_reasons", "write_cases", "write_json"]

FOLDER = Path(__file__).parent
_BRIEF = ("threshold", "events", "clock", "corrections")
_BRIEF_WINDOW = ("auc", "f1", "mae")
_SENTENCES = {"correction", "description", "detail", "failed", "not_ready", "reason", "summary", "title", "words"}
# from one run, machine or version to the next
_CHANGING = {
    "birth",
    "instance",
    "kernels",
    "request_id",
    "size",
    "stale_seconds",
    "state_bytes",
    "version",
    "x-applies-to",
}


def read_json(name: str) -> Any:
    """Read a recording; one whose name ends with `.xz` is compressed."""
    data = (FOLDER / name).read_bytes()
    return json.loads(lzma.decompress(data) if name.endswith(".xz") else data)


def write_json(name: str, document: Any) -> None:
    """Write a compressed recording."""
    data = json.dumps(document, separators=(",", ":")).encode()
    (FOLDER / name).write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))


def write_cases(name: str, document: dict[str, dict[str, Any]]) -> None:
    """Write a recording of cases by part, one case on each line."""
    parts = []
    for part, cases in document.items():
        lines = [f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in cases.items()]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    (FOLDER / name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def without_reasons(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics with the names of what is undefined, and without the reasons, which are sentences."""
    return {**metrics, "undefined": sorted(metrics.get("undefined", {}))}


def brief(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return some of the metrics, and a digest of all of them."""
    text = json.dumps(without_reasons(metrics), sort_keys=True)
    return {
        **{name: metrics[name] for name in _BRIEF if name in metrics},
        **{name: metrics["window"][name] for name in _BRIEF_WINDOW if name in metrics["window"]},
        "all": blake2b(text.encode(), digest_size=6).hexdigest(),
    }


def plain(document: Any) -> Any:
    """Leave out what no program may depend on: the wording of sentences, generated ids, sizes and times of runs.

    Members that came to the errors later, `code`, `value` and `expected`, are left out, too.
    """
    if isinstance(document, list):
        return [plain(item) for item in document]
    if not isinstance(document, dict):
        return document
    if {"pointer", "detail"} <= document.keys():
        return {"pointer": document["pointer"], "detail": "<text>"}
    expected = {name: plain(value) for name, value in document.items() if name not in _CHANGING}
    expected |= {name: "<text>" for name in _SENTENCES & expected.keys() if isinstance(expected[name], str)}
    if isinstance(expected.get("undefined"), dict):
        expected["undefined"] = sorted(expected["undefined"])
    if "position" in expected and expected.keys() <= {"position", "time", "time_iso"}:
        expected = {"position": expected["position"]}  # a snapshot's
    return expected


def differences(expected: Any, actual: Any, pointer: str = "") -> Iterator[str]:
    """Tell each place where two documents differ, what was recorded there, and what came now."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            place = f"{pointer}/{name}"
            if name not in actual:
                yield f"{place}: is missing; recorded {_shorten(expected[name])}"
            elif name not in expected:
                yield f"{place}: is new: {_shorten(actual[name])}"
            else:
                yield from differences(expected[name], actual[name], place)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{pointer}: has {len(actual)} entries; recorded {len(expected)}"
        for i, (item, other) in enumerate(zip(expected, actual, strict=False)):
            yield from differences(item, other, f"{pointer}/{i}")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{pointer}: got {_shorten(actual)}; recorded {_shorten(expected)}"


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

"""Reads, writes and compares recordings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "brief", "differences", "read_json", "without_reasons", "write_cases"]

FOLDER = Path(__file__).parent
_BRIEF = ("threshold", "events", "clock", "corrections")
_BRIEF_WINDOW = ("auc", "f1", "mae")


def read_json(name: str) -> Any:
    """Read a recording."""
    return json.loads((FOLDER / name).read_text())


def write_cases(name: str, document: dict[str, dict[str, Any]]) -> None:
    """Write a recording of cases by part, one case on each line."""
    parts = []
    for part, cases in document.items():
        lines = [f"{json.dumps(key)}:{json.dumps(value, separators=(',', ':'))}" for key, value in cases.items()]
        parts.append(f"{json.dumps(part)}: {{\n" + ",\n".join(lines) + "\n}")
    (FOLDER / name).write_text("{\n" + ",\n".join(parts) + "\n}\n")


def without_reasons(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics with the names of what is undefined, and without the reasons, which are sentences."""
    return {**metrics, "undefined": sorted(metrics.get("undefined", {}))}


def brief(metrics: dict[str, Any]) -> dict[str, Any]:
    """Some of the metrics, and a digest of all of them."""
    text = json.dumps(without_reasons(metrics), sort_keys=True)
    return {
        **{name: metrics[name] for name in _BRIEF if name in metrics},
        **{name: metrics["window"][name] for name in _BRIEF_WINDOW if name in metrics["window"]},
        "all": blake2b(text.encode(), digest_size=6).hexdigest(),
    }


def differences(expected: Any, actual: Any, pointer: str = "") -> Iterator[str]:
    """Tell each place where two documents differ, what was recorded there, and what came now."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            place = f"{pointer}/{name}"
            if name not in actual:
                yield f"{place}: is missing; recorded {_shown(expected[name])}"
            elif name not in expected:
                yield f"{place}: is new: {_shown(actual[name])}"
            else:
                yield from differences(expected[name], actual[name], place)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield f"{pointer}: has {len(actual)} entries; recorded {len(expected)}"
        for i, (one, other) in enumerate(zip(expected, actual, strict=False)):
            yield from differences(one, other, f"{pointer}/{i}")
    elif type(expected) is not type(actual) or expected != actual:
        yield f"{pointer}: got {_shown(actual)}; recorded {_shown(expected)}"


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."

"""Text for people: durations, curves, and the parts of a learner's configuration. Quick to import."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.text import counted

__all__ = [
    "format_bytes",
    "format_config",
    "format_duration",
    "format_threshold",
    "parse_duration",
    "rough_duration",
    "sparkline",
]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNIT_NAMES = {"d": "d", "h": "h", "m": "min", "s": "s"}  # from the longest
_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-=^"  # if the terminal's encoding has no such bars
_OBJECTIVE_SETTINGS = {  # the settings that have an effect on an objective
    "fixed": ("value",),
    "fbeta": ("beta",),
    "cost": ("false_positive", "false_negative", "field"),
    "fpr": ("target",),
    "precision": ("target",),
    "recall": ("target",),
    "budget": ("alerts", "unit_seconds", "rate"),
}


def parse_duration(text: str) -> float:
    """Return the seconds of a text like 7d, 1.5h, 30m, 45s or 45. Raises ValueError."""
    text = text.strip()
    number, unit = (text[:-1], text[-1]) if text[-1:] in _UNITS else (text, "s")
    try:
        value = float(number) * _UNITS[unit]
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(f"{text!r}; expected a number with s, m, h or d: 45s, 30m, 12h, 7d")
    return value


def rough_duration(seconds: float) -> str:
    """Return a whole number of the largest unit that fits: "7 d", "2 h", "0 s"."""
    unit = _largest_unit(seconds)
    return f"{round(seconds / _UNITS[unit])} {_UNIT_NAMES[unit]}"


def format_duration(seconds: float) -> str:
    """Return a duration in the largest unit that fits: "7 d", "1.5 h", "0.25 s"."""
    unit = _largest_unit(seconds)
    return f"{seconds / _UNITS[unit]:.4g} {_UNIT_NAMES[unit]}"


def _largest_unit(seconds: float) -> str:
    return next((unit for unit in _UNIT_NAMES if abs(seconds) >= _UNITS[unit]), "s")


def format_bytes(count: int) -> str:
    """Return bytes as the dashboard shows them: 512 B, 1.3 KiB, 20 MiB."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" or value >= 10 else f"{value:.1f} {unit}"


def sparkline(values: Sequence[float | None], width: int, *, plain: bool = False) -> str:
    """Draw a curve from its lowest to its highest value, at most `width` characters; a blank for no value.

    If there are more values than characters, each character is the mean of several.
    """
    bars = _ASCII_BARS if plain else _BARS
    count = min(width, len(values))
    means: list[float | None] = []
    for k in range(count):
        part = [
            value for value in values[k * len(values) // count : (k + 1) * len(values) // count] if value is not None
        ]
        means.append(sum(part) / len(part) if part else None)
    present = [mean for mean in means if mean is not None]
    if not present:
        return ""
    low, high = min(present), max(present)
    scale = (len(bars) - 1) / (high - low) if high > low else 0.0
    middle = len(bars) // 2 if not scale else 0
    return "".join(" " if mean is None else bars[middle + round((mean - low) * scale)] for mean in means)


def format_config(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the active parts of a configuration: a title, and the choice in a few words."""
    yield "algorithm", " ".join([config["algorithm"], *_pairs(config["params"] or {})])
    features = {**config["features"]}
    fields = [f"{field['name']} ({field['kind']})" for field in features.pop("fields", ())]
    yield "features", " ".join([features.pop("kind"), *_pairs(features), *([", ".join(fields)] if fields else [])])
    for part in ("scaling", "embedding", "calibration"):
        settings = {**(config[part] or {})}
        kind = settings.pop("kind", "none")
        if kind != "none":
            yield part, " ".join([kind, *_pairs(settings)])
    if config["threshold"] is not None:
        yield "objective", format_threshold(config["threshold"])
    late = config["late"]
    yield "late labels", f"for {format_duration(late['label_ttl'])}, then {late['unlabelled']}"
    if config["refit_every"] is not None:
        yield "fits", f"every {counted(config['refit_every'], 'event')}, of the last {config['refit_window']:,}"


def format_threshold(threshold: Mapping[str, Any]) -> str:
    """Return a threshold's objective and settings: `budget alerts=100 unit_seconds=86400`."""
    objective = threshold["objective"]
    settings = {name: threshold[name] for name in _OBJECTIVE_SETTINGS.get(objective, ())}
    if settings.get("rate") is not None:
        del settings["unit_seconds"]  # belongs to `alerts`
    return " ".join([objective, *_pairs(settings)])


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    """Return `C=0.1 categorical=merchant,country` as a list, without empty values; of an object its name."""
    texts = {
        name: ",".join(item["name"] if isinstance(item, Mapping) else str(item) for item in value)
        if isinstance(value, list)
        else value
        for name, value in settings.items()
    }
    return [
        f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in texts.items()
        if value not in (None, "")
    ]

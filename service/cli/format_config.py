"""The parts of a learner's configuration in a few words each, as `show`, `create` and `threshold` tell them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from service.cli.durations import spoken
from service.datasets import counted

__all__ = ["aim_of", "settings_of"]

_OWN = {  # of a threshold, the settings that its objective goes by
    "fixed": ("value",),
    "fbeta": ("beta",),
    "cost": ("false_positive", "false_negative", "field"),
    "fpr": ("target",),
    "precision": ("target",),
    "recall": ("target",),
    "budget": ("alerts", "unit_seconds", "rate"),
}


def settings_of(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The parts that do something: what each is called, and what was chosen."""
    yield "algorithm", " ".join([config["algorithm"], *_pairs(config["params"] or {})])
    features = {**config["features"]}
    fields = [f"{one['name']} ({one['kind']})" for one in features.pop("fields", ())]
    yield "features", " ".join([features.pop("kind"), *_pairs(features), *([", ".join(fields)] if fields else [])])
    for part in ("scaling", "embedding", "calibration"):
        settings = {**(config[part] or {})}
        kind = settings.pop("kind", "none")
        if kind != "none":
            yield part, " ".join([kind, *_pairs(settings)])
    if config["threshold"] is not None:
        yield "objective", aim_of(config["threshold"])
    late = config["late"]
    yield "late labels", f"for {spoken(late['label_ttl'])}, then {late['unlabelled']}"
    if config["refit_every"] is not None:
        yield "fits", f"every {counted(config['refit_every'], 'event')}, of the last {config['refit_window']:,}"


def aim_of(threshold: Mapping[str, Any]) -> str:
    """What a threshold is learnt for: `budget alerts=100 unit_seconds=86400`."""
    objective = threshold["objective"]
    own = {name: threshold[name] for name in _OWN.get(objective, ())}
    if own.get("rate") is not None:
        del own["unit_seconds"]  # of alerts
    return " ".join([objective, *_pairs(own)])


def _pairs(settings: Mapping[str, Any]) -> list[str]:
    """`C=0.1 categorical=merchant,country`; what is empty is left out."""
    shown = {name: ",".join(map(str, one)) if isinstance(one, list) else one for name, one in settings.items()}
    return [
        f"{name}={one:.6g}" if isinstance(one, float) else f"{name}={one}"
        for name, one in shown.items()
        if one not in (None, "")
    ]

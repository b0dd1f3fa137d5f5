"""Where a setting belongs that was given as a parameter of the algorithm: the option, or the member of `--config`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["misplaced"]

_OPTIONS = {
    "scaling": {"kind": "--scaling"},
    "embedding": {
        "kind": "--embedding",
        "components": "--components",
        "warmup": "--warmup",
        "width": "--width",
    },
    "calibration": {"kind": "--calibration"},
    "threshold": {
        "objective": "--threshold",
        "value": "--value",
        "beta": "--beta",
        "target": "--target",
        "false_positive": "--false-positive",
        "false_negative": "--false-negative",
        "field": "--cost-field",
        "alerts": "--alerts",
        "unit_seconds": "--unit",
        "rate": "--rate",
    },
    "late": {"label_ttl": "--label-ttl", "unlabelled": "--unlabelled"},
    "": {
        name: f"--{name.replace('_', '-')}"
        for name in ("window", "window_seconds", "refit_every", "refit_window", "seed", "precision")
    },
}
_OWNERS = {"": "the learner itself", "late": "late labels"}


def misplaced(body: Mapping[str, Any], pointers: Iterable[str]) -> list[str]:
    """A line for each parameter among the refused `pointers` that is a setting of another part of a learner.

    `body` is the request. Nothing is said of a parameter that the algorithm has, whatever is wrong with its value.
    """
    refused = {pointer.removeprefix("/params/") for pointer in pointers if pointer.startswith("/params/")}
    if not refused:
        return []
    from learners import algorithms, calibration, embedding, scaling, threshold  # loads numba: only where needed
    from learners.config import Whole
    from learners.figures import Figures
    from learners.late import LateLabels
    from learners.parameters import Parameters

    parts: dict[str, type[Parameters]] = {
        "scaling": scaling.Scaling,
        "embedding": embedding.Embedding,
        "calibration": calibration.Calibration,
        "threshold": threshold.Threshold,
        "figures": Figures,
        "late": LateLabels,
        "": Whole,
    }
    params = body.get("params")
    algorithm = algorithms().get(str(body.get("algorithm")))
    if algorithm is None or not isinstance(params, Mapping):
        return []
    own = algorithm.Params.schema()["properties"]
    lines = []
    for name, value in params.items():
        if name in own or name not in refused:
            continue
        found = {part: kind for part, kind in parts.items() if name in kind.schema()["properties"]}
        if found:
            owners = " and ".join(_OWNERS.get(part, f"the {part}") for part in found)
            ways = " or ".join(_way(part, name, value) for part in found)
            lines.append(f"{name} is a setting of {owners}: use {ways}")
    return lines


def _way(part: str, name: str, value: Any) -> str:
    option = _OPTIONS.get(part, {}).get(name)
    if option is not None:
        return f"{option} {value}"
    member = {name: value} if not part else {part: {name: value}}
    return f"--config with {json.dumps(member)}"

"""The catalogue: every algorithm by name, found by its file.

A module of this package that has `TRAITS` is an algorithm; `cbr_diag.py` is "cbr-diag". Nothing has to be registered.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any, cast

from learners.algorithms.base import Algorithm

__all__ = ["algorithms", "describe", "is_baseline"]

_FAMILIES = ("auc", "fmeasure", "ordinal", "baselines")  # packages of algorithms


@functools.cache
def algorithms() -> dict[str, Algorithm]:
    """Name -> module, in alphabetical order."""
    package = __name__.rpartition(".")[0]
    modules = {}
    for family in _FAMILIES:
        folder = f"{package}.{family}"
        for info in pkgutil.iter_modules(importlib.import_module(folder).__path__):
            module = importlib.import_module(f"{folder}.{info.name}")
            if hasattr(module, "TRAITS"):
                modules[info.name.replace("_", "-")] = cast(Algorithm, module)
    return dict(sorted(modules.items()))


def is_baseline(name: str) -> bool:
    """Return whether an algorithm exists for comparison, as in the tables of the papers."""
    return ".baselines." in algorithms()[name].Params.__module__


# What a corrected label does to a model. Nothing that learns from each event keeps what it would take to undo a step:
# the steps after it followed from it. What is retained for a fit is corrected where it stands.
_CORRECTED = "exact: the retained event gets its right label, and the next fit is as if it had always had it"
_ANEW = (
    "learnt as a new event with its right label, where its features are at hand; exact before an embedding is fitted, "
    "since all is learnt anew behind it"
)


def describe(name: str) -> dict[str, Any]:
    """An algorithm's entry for the HTTP catalogue: what it is, what it takes, a JSON schema of its parameters."""
    module = algorithms()[name]
    traits = module.TRAITS
    text = (module.__doc__ or "").strip()
    return {
        "name": name,
        "summary": text.splitlines()[0],
        "description": text,
        "params": module.Params.schema(),
        "dense": traits.dense,
        "sparse": traits.sparse,
        "max_columns": traits.max_dim,
        "cost": traits.cost.order,
        "posterior": traits.posterior,
        "ordinal": traits.ordinal,
        "batch": hasattr(module, "fit"),
        "correction": _CORRECTED if hasattr(module, "fit") else _ANEW,
        "defaults": {part: dict(values) for part, values in traits.defaults.items()},
    }

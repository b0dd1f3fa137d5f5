"""The registry: every algorithm by name.

A module of a family package with `TRAITS` is an algorithm; `cbr_diag.py` is "cbr-diag". No list of them is needed.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from typing import Any, cast

from learners.algorithms.base import Algorithm

__all__ = ["algorithms", "describe", "is_baseline"]

_FAMILIES = ("ensembles", "auc", "fmeasure", "ordinal", "trees", "baselines")  # packages of algorithms


@functools.cache
def algorithms() -> dict[str, Algorithm]:
    """Return the modules of all algorithms by name, in alphabetical order."""
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
    """Return whether an algorithm is a baseline of the papers."""
    return ".baselines." in algorithms()[name].Params.__module__


# How a corrected label changes a model. Online algorithms cannot undo a step, because later steps depend on it. Events
# that a batch algorithm retains for the next fit are corrected in place.
_CORRECTED = "exact: the retained event gets the corrected label, and the next fit is as if it had always had it"
_ANEW = (
    "learnt as a new event with the corrected label if its features are available; exact before an embedding is "
    "fitted, because the fit starts the model afresh"
)


def describe(name: str) -> dict[str, Any]:
    """Describe an algorithm for `GET /v1/algorithms`: its text, properties and the JSON schema of its parameters."""
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
        "batch": not hasattr(module, "learn"),
        "correction": _ANEW if hasattr(module, "learn") else _CORRECTED,
        "defaults": {part: dict(values) for part, values in traits.defaults.items()},
    }

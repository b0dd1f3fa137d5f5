"""What a refused setting is called on the command line: its option, where it has one; and what was meant, perhaps.

That is told of a learner, or group, that is not there, too, by its name. And where a setting belongs that was given as
a parameter of the algorithm: the option, or the member of `--config`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from service.cli.api_errors import Problem, told

if TYPE_CHECKING:
    from service.cli.api import ApiError

__all__ = ["misplaced", "named", "nearly"]

_OPTIONS = {
    "features": {
        "kind": "--features",
        "dim": "--dim",
        "bits": "--bits",
        "text": "--text",
        "categorical": "--categorical",
        "log": "--log",
        "fields": "--field",
        "extra": "--extra",
    },
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
        for name in (
            "algorithm",
            "features",
            "window",
            "window_seconds",
            "refit_every",
            "refit_window",
            "seed",
            "precision",
        )
    },
}
_NAMES = 20_000  # that are compared with one that is unknown: a fifth of a second
_BEHIND = 0.1  # of the ratio that difflib gives: how much less near than the nearest a name may be
_OWNERS = {"": "the learner itself", "late": "late labels"}


def nearly(name: str, names: Iterable[str]) -> list[str]:
    """Those called nearly so, whatever their case, nearest first: up to three, none much farther than the nearest."""
    wanted = name.casefold()
    folded = {one.casefold(): one for one in sorted(names)[:_NAMES]}
    near = get_close_matches(wanted, folded)
    ratios = [SequenceMatcher(None, one, wanted).ratio() for one in near]
    return [folded[one] for one, ratio in zip(near, ratios, strict=True) if ratio > ratios[0] - _BEHIND]


def named(
    error: ApiError,
    given: Mapping[str, Any] | None = None,
    more: Iterable[str] = (),
    *,
    objective: str = _OPTIONS["threshold"]["objective"],
) -> ApiError:
    """The same error, with options in the place of the pointers to what they set, what was meant, and `more` lines.

    `given` are the settings that were given by options, where others came from a file: theirs are named by pointers.
    `objective` is what a threshold's is called.
    """
    problems = [
        problem if given is not None and not _there(given, problem.pointer) else _as_option(problem)
        for problem in error.problems
    ]
    for problem in problems:
        if problem.pointer == _OPTIONS["threshold"]["objective"]:
            problem.pointer = objective
    heading, *_ = str(error).split("\n", 1)
    error.args = ("\n".join([told(heading, problems), *_meant(problems), *more]),)
    return error


def _meant(problems: Iterable[Problem]) -> Iterator[str]:
    """Suggest the choice that is closest to each refused value or unknown name."""
    for problem in problems:
        choices = {str(choice).casefold(): choice for choice in problem.expected.get("enum", ())}
        near = get_close_matches(str(problem.value).casefold(), choices, 1)
        if near:
            name = str(problem.value)
            before = problem.pointer.removesuffix(name) if problem.code == "unknown" else f"{problem.pointer} "
            yield f"Did you mean {before if before.startswith('--') else ''}{choices[near[0]]}?"


def _there(given: Mapping[str, Any], pointer: str) -> bool:
    """Whether a setting was given."""
    found: Any = given
    for part in pointer.split("/")[1:]:
        if not isinstance(found, Mapping):
            return True  # in a value that was given whole
        if part not in found:
            return False
        found = found[part]
    return True


def _as_option(problem: Problem) -> Problem:
    _, *path = problem.pointer.split("/")
    if not path:
        return problem
    part, rest = ("", path) if path[0] not in _OPTIONS or len(path) == 1 else (path[0], path[1:])
    option = f"--param {rest[1]}" if rest[0] == "params" and len(rest) > 1 else _OPTIONS[part].get(rest[0])
    if option is None and len(path) == 1 and path[0] in _OPTIONS:  # the part as a whole: by what chooses its kind
        option = next(iter(_OPTIONS[path[0]].values()))
    if option is None:
        return problem
    deeper = "" if len(rest) < 2 or rest[0] == "params" else f" ({problem.pointer})"
    return msgspec.structs.replace(problem, pointer=f"{option}{deeper}")


def misplaced(body: Mapping[str, Any], pointers: Iterable[str]) -> list[str]:
    """A line for each parameter among the refused `pointers` that is a setting of another part of a learner.

    `body` is the request. Nothing is said of a parameter that the algorithm has, whatever is wrong with its value.
    """
    refused = {pointer.removeprefix("/params/") for pointer in pointers if pointer.startswith("/params/")}
    if not refused:
        return []
    from learners import LearnerSettings, Parameters, algorithms
    from learners.decisions import calibration, threshold
    from learners.features import LateLabels, kernel_approximation, scaling  # loads numba: only where needed
    from learners.metrics import MetricSettings

    parts: dict[str, type[Parameters]] = {
        "scaling": scaling.Scaling,
        "embedding": kernel_approximation.Embedding,
        "calibration": calibration.Calibration,
        "threshold": threshold.Threshold,
        "figures": MetricSettings,
        "late": LateLabels,
        "": LearnerSettings,
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

"""Names refused settings by their options, suggests near values, and finds the place of misplaced parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from service.cli.request_errors import RequestFailed

if TYPE_CHECKING:
    from rarestream import Client, ClientError, InvalidValue

__all__ = ["SHORTCUTS", "misplaced_params", "setting_label", "settings_refused"]

SHORTCUTS = {  # pointer -> option of `create`
    "/algorithm": "--algorithm",
    "/features": "--features",
    "/features/kind": "--features",
    "/features/dim": "--dim",
    "/features/text": "--text",
    "/features/categorical": "--categorical",
    "/features/log": "--log",
    "/features/fields": "--field",
    "/scaling/kind": "--scaling",
    "/threshold": "--threshold",
    "/threshold/objective": "--threshold",
    "/threshold/target": "--target",
    "/threshold/alerts": "--alerts",
    "/late/label_ttl": "--label-ttl",
    "/window": "--window",
    "/seed": "--seed",
}
_PARAMS = "/params/"
_PART_NAMES = {"learner": "the learner itself", "late": "late labels"}


def setting_label(pointer: str, settings: Mapping[str, Any] | None = None) -> str:
    """Return the option of a setting: a shortcut, `--param NAME`, or `--set path`.

    `settings`: those of options, if others come from a file; the latter are named by pointers.
    """
    if not pointer or (settings is not None and not _contains(settings, pointer)):
        return pointer
    if pointer == "/name":
        return "NAME"
    if pointer.startswith(_PARAMS):
        return f"--param {pointer.removeprefix(_PARAMS)}"
    parent = pointer
    while parent and parent not in SHORTCUTS:
        parent = parent.rpartition("/")[0]
    if parent == pointer:
        return SHORTCUTS[pointer]
    if parent == "/features/fields":
        return f"{SHORTCUTS[parent]} ({pointer})"
    return f"--set {pointer[1:].replace('/', '.')}"


def settings_refused(
    error: ClientError,
    settings: Mapping[str, Any] | None = None,
    hints: Iterable[str] = (),
    objective: str = SHORTCUTS["/threshold/objective"],
    within: str = "",
) -> RequestFailed:
    """Return the failure with options instead of pointers, and suggestions.

    `objective`: the option, or argument, of a threshold's objective. `within`: the part of a learner's settings that
    pointers begin in.
    """

    def label(pointer: str) -> str:
        pointer = within + pointer
        return objective if pointer == "/threshold/objective" else setting_label(pointer, settings)

    suggestions = [line for problem in error.problems if (line := _suggestion(problem, label)) is not None]
    return RequestFailed(error, [*suggestions, *hints], label)


def _suggestion(problem: InvalidValue, label: Callable[[str], str]) -> str | None:
    """Return a hint if the value, or the unknown name, is nearly one of those expected."""
    choices = (problem.expected or {}).get("enum")
    if not isinstance(problem.value, str) or not choices:
        return None
    folded = {str(choice).casefold(): choice for choice in choices}
    near = get_close_matches(problem.value.casefold(), folded, 1)
    if not near:
        return None
    choice = folded[near[0]]
    if problem.code == "unknown":
        option = label(f"{problem.pointer.rpartition('/')[0]}/{choice}")
        return f"Did you mean {option}?"
    option = label(problem.pointer)
    return f"Did you mean {f'{option} ' if option.startswith('--') else ''}{choice}?"


def _contains(settings: Mapping[str, Any], pointer: str) -> bool:
    """Return whether the settings have a value at, or above, this pointer."""
    value: Any = settings
    for part in pointer.split("/")[1:]:
        if not isinstance(value, Mapping):
            return True  # inside a complete value
        if part not in value:
            return False
        value = value[part]
    return True


def misplaced_params(body: Mapping[str, Any], error: ClientError, client: Client) -> list[str]:
    """Return a hint for each unknown parameter of the algorithm that is a setting of another part of a learner."""
    from rarestream import ClientError

    names = [problem.pointer.removeprefix(_PARAMS) for problem in error.problems if _is_unknown_param(problem)]
    params = body.get("params")
    if not names or not isinstance(params, Mapping):
        return []
    try:
        parts = client.algorithms()["parts"]
    except ClientError:  # the first error says enough
        return []
    return [line for name in names if name in params for line in _placed(name, params[name], parts)]


def _is_unknown_param(problem: InvalidValue) -> bool:
    return problem.code == "unknown" and problem.pointer.startswith(_PARAMS)


def _placed(name: str, value: Any, parts: Mapping[str, Any]) -> Iterator[str]:
    owners = [part for part, schema in parts.items() if part != "features" and name in schema["properties"]]
    if owners:
        where = " and ".join(_PART_NAMES.get(part, f"the {part}") for part in owners)
        ways = " or ".join(_way("" if part == "learner" else f"/{part}", name, value) for part in owners)
        yield f"{name} is a setting of {where}: use {ways}"


def _way(part: str, name: str, value: Any) -> str:
    option = setting_label(f"{part}/{name}")
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{option}={text}" if option.startswith("--set") else f"{option} {text}"

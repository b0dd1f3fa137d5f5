"""Errors of requests as text, exit status and hints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import SequenceMatcher, get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import unquote

from service.exits import CommandFailed, ExitStatus

if TYPE_CHECKING:
    from rarestream import Client, ClientError

__all__ = ["RequestFailed", "exit_status_of", "near_names", "similar_learners"]

_ARGUMENTS = {"/name": "NAME", "/to": "TO"}  # values of a path, or alone in a body, that are arguments
_LISTED = 10  # problems that an error shows
_MAX_NAMES = 20_000  # names compared with an unknown one: a fifth of a second
_RATIO_GAP = 0.1  # of difflib's ratio: how much less similar than the best match a name may be
_LISTS = {"unknown-learner": ("learners", "list"), "unknown-group": ("groups", "groups")}  # member, command
_REMEDIES = {
    "unknown-learner": "`rarestream list` shows the learners.",
    "unknown-group": "`rarestream groups` shows the groups.",
    "unknown-snapshot": "`rarestream snapshots NAME` shows the stored snapshots.",
    "unknown-alarm": "`rarestream alarms NAME` shows the alarms.",
    "store-full": "The store has no room. Delete learners or give it room, then repeat the command.",
    "store-unavailable": "The service cannot reach its store. Check the store, then repeat the command.",
    "damaged": "If the learner is listed, `rarestream export` saves what can be read of it, for `rarestream import`.",
    "unauthorized": "Give a key of the service with RARESTREAM_KEY or --key.",
    "forbidden": "Use a key with that permission; `rarestream keys create --keys FILE` makes one.",
    "certificate-name": "The certificate is for another name: use that name in --url or RARESTREAM_URL.",
    "certificate-untrusted": "RARESTREAM_CA names a file of certificates to trust besides those of the system.",
}
_WRONG_SCHEME = ("tls-needed", "tls-missing")  # the error says what to do


class RequestFailed(CommandFailed):
    """A request failed. The text has a line per refused value; `hints` follow it."""

    def __init__(
        self,
        error: ClientError,
        hints: Iterable[str] = (),
        label: Callable[[str], str] = lambda pointer: _ARGUMENTS.get(pointer, pointer),
    ) -> None:
        self.error = error
        self.hints = tuple(hints)
        self.exit_status = exit_status_of(error)
        lines = [f"  {label(problem.pointer)}: {problem.detail}" for problem in error.problems]
        more = [f"  and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
        retried = [f"Gave up after {error.retried_seconds:.0f} s of retries"] if error.retried_seconds else []
        super().__init__("\n".join([error.detail, *lines[:_LISTED], *more, *retried, *self.hints]))

    @property
    def remedy(self) -> str | None:
        """What may help, if the text does not say it."""
        code = self.error.code
        if self.hints or code in _WRONG_SCHEME:
            return None
        if self.exit_status == ExitStatus.UNREACHABLE and code is None:
            return "Is it running? `rarestream serve` starts one; --url or RARESTREAM_URL says where it is."
        return _REMEDIES.get(code or "")


def exit_status_of(error: ClientError) -> ExitStatus:
    """Return the exit status of a command that ends with this error."""
    from rarestream import OutcomeUnknown

    status = error.status
    if status is None:  # no answer
        uncertain = isinstance(error, OutcomeUnknown) and not error.repeatable
        return ExitStatus.FAILED if uncertain else ExitStatus.UNREACHABLE
    if status < 300 or (status == 404 and error.code is None):  # no rarestream service
        return ExitStatus.UNREACHABLE
    if status == 404 and error.code != "not-found":  # that code is for a malformed name
        return ExitStatus.NOT_FOUND
    return ExitStatus.REFUSED if status < 500 else ExitStatus.FAILED


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three similar names, ignoring case, most similar first."""
    folded = {candidate.casefold(): candidate for candidate in sorted(names)[:_MAX_NAMES]}
    near = get_close_matches(name.casefold(), folded)
    ratios = [SequenceMatcher(None, candidate, name.casefold()).ratio() for candidate in near]
    return [folded[candidate] for candidate, ratio in zip(near, ratios, strict=True) if ratio > ratios[0] - _RATIO_GAP]


def similar_learners(error: ClientError, client: Client) -> list[str]:
    """Return a hint if an unknown learner or group has nearly the name of another one."""
    from rarestream import ClientError

    if error.code not in _LISTS or error.path is None:
        return []
    member, command = _LISTS[error.code]
    name = unquote(error.path.split("/")[1].partition("?")[0])
    try:
        listing = client.learners() if member == "learners" else client.groups()
    except ClientError:  # the first error says enough
        return []
    names = {entry["name"] for entry in listing[member]}.union(listing.get("asleep", ())) - {name}
    near = near_names(name, names)
    return [f"Did you mean {' or '.join(near)}? `rarestream {command}` shows all."] if near else []

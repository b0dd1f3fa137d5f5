"""Redirects between nodes (`RARESTREAM_ELSEWHERE=redirect`)."""

from __future__ import annotations

import httpx

__all__ = ["MAX_REDIRECTS", "redirect_target"]

MAX_REDIRECTS = 3  # of one request: while learners move, nodes may disagree for a moment


def redirect_target(response: httpx.Response) -> str | None:
    """Return the URL of the node that answers this request; None if the response is the answer.

    The key is sent there, too. So it must be the same request, at an address that is not less protected. A redirect of
    a proxy, for example to a login page, is not followed.
    """
    if response.status_code != httpx.codes.TEMPORARY_REDIRECT:
        return None
    try:
        target = httpx.URL(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return None
    source = response.request.url
    same = target.raw_path.startswith(b"/v1/") and source.raw_path.endswith(target.raw_path)
    if not same or not target.host or target.scheme not in ("https", source.scheme):
        return None
    return str(target)

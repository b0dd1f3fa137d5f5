"""Where a request goes on to that a node does not pass on (`RARESTREAM_ELSEWHERE=redirect`), for all our clients."""

from __future__ import annotations

import httpx

__all__ = ["HOPS", "elsewhere"]

HOPS = 3  # how often one request goes on: while learners move, nodes may disagree for a moment


def elsewhere(response: httpx.Response) -> str | None:
    """Where a node that does not pass requests on says that this one is answered; None: the reply is the answer.

    The key goes there, too, so it has to be the same request, at an address that is not less protected. What a proxy in
    between redirects, to a page where people log in, is not followed.
    """
    if response.status_code != httpx.codes.TEMPORARY_REDIRECT:
        return None
    try:
        there = httpx.URL(response.headers.get("location", ""))
    except httpx.InvalidURL:
        return None
    asked = response.request.url
    same = there.raw_path.startswith(b"/v1/") and asked.raw_path.endswith(there.raw_path)
    if not same or not there.host or there.scheme not in ("https", asked.scheme):
        return None
    return str(there)

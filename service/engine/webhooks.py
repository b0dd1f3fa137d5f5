"""Alarms to whoever has to know: one POST of JSON per alarm to the address that the settings name.

The node whose request brought the alarm about sends it, and no other, however many nodes there are; nothing is sent
when a log is replayed. Where an answer gets lost it comes twice, with the same number; where the node ends, not at all.
What cannot be delivered is tried again some times, then given up and logged; the alarm itself stays in the learner's
history.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

__all__ = ["Webhook"]

logger = logging.getLogger("rarestream.webhook")

_PAUSES = (1.0, 4.0, 16.0, 64.0)  # seconds before each further try
_WAITING = 1000  # alarms that wait at most; further ones are logged only
_SECONDS = 10.0  # that one try may take


class Webhook:
    """Sends to one address, in order, behind the back of those who tell it."""

    def __init__(self, url: str | None) -> None:
        """Without an address alarms are only logged."""
        self._url = url
        self._alarms: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._task: asyncio.Task[None] | None = None

    def tell(self, learner: str, alarm: dict[str, Any]) -> None:
        """Send an alarm of a learner; returns at once."""
        logger.warning("%s: %s alarm at %d events", learner, alarm["kind"], alarm["events"])
        if self._url is None:
            return
        try:
            self._alarms.put_nowait({"learner": learner, **alarm})
        except asyncio.QueueFull:
            logger.error("an alarm of %s is not sent: %d wait already", learner, _WAITING)
            return
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="webhook")

    async def close(self) -> None:
        """Send no more."""
        if not self._alarms.empty():
            logger.error("%d alarms are not sent: the node stops", self._alarms.qsize())
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        async with httpx.AsyncClient(timeout=_SECONDS) as client:
            while True:
                await self._send(client, await self._alarms.get())

    async def _send(self, client: httpx.AsyncClient, alarm: dict[str, Any]) -> None:
        assert self._url is not None
        for pause in (*_PAUSES, None):
            try:
                reply = await client.post(self._url, json=alarm)
                reply.raise_for_status()
            except httpx.HTTPStatusError as error:
                problem = f"it was answered with {error.response.status_code}"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = f"{type(error).__name__}"  # its text may show the address, which may hold a secret
            else:
                return
            if pause is None:
                logger.error("an alarm of %s could not be sent: %s", alarm["learner"], problem)
            else:
                await asyncio.sleep(pause)

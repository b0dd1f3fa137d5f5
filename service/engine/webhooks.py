"""Posts drift alarms: one POST of JSON per alarm to the address of the setting `webhook`.

Only the node whose request raised the alarm sends it, and a replay of the log sends nothing. If a response is lost, the
alarm arrives twice with the same number. If the node ends, it does not arrive. Failing requests are retried a few times
and then logged; the alarm itself stays in the learner's history.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx

from service.text import counted

__all__ = ["Webhook"]

logger = logging.getLogger("rarestream.webhook")

_PAUSES = (1.0, 4.0, 16.0, 64.0)  # seconds before each retry
_WAITING = 1000  # alarms in the queue; further ones are only logged
_SECONDS = 10.0  # time-out of one attempt


class Webhook:
    """Sends alarms to one address, in order, in the background."""

    def __init__(self, url: str | None) -> None:
        """`url`: None only logs the alarms."""
        self._url = url
        self._alarms: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._task: asyncio.Task[None] | None = None

    def send(self, learner: str, alarm: dict[str, Any]) -> None:
        """Log an alarm of a learner and queue it; return at once."""
        logger.warning("%s: %s alarm at %d events", learner, alarm["kind"], alarm["events"])
        if self._url is None:
            return
        try:
            self._alarms.put_nowait({"learner": learner, **alarm})
        except asyncio.QueueFull:
            logger.error("an alarm of %s is not sent: the queue of %d alarms is full", learner, _WAITING)
            return
        if self._task is None:
            self._task = asyncio.create_task(self._send_all(), name="webhook")

    async def close(self) -> None:
        """Send no more."""
        if not self._alarms.empty():
            logger.error("%s not sent because the node stops", counted(self._alarms.qsize(), "alarm"))
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
                problem = f"the response was {error.response.status_code}"
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = f"{type(error).__name__}"  # its text may show the address, which may contain a secret
            else:
                return
            if pause is None:
                logger.error("cannot send an alarm of %s: %s", alarm["learner"], problem)
            else:
                await asyncio.sleep(pause)

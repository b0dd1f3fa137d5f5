"""Posts drift alarms: one POST to the address of the setting `webhook` if one is raised, resolved or reopened.

Only the node whose request changed the alarm sends it, and a replay of the log sends nothing. If a response is lost, it
arrives twice with the same number and state. A request that fails is repeated for a day, with growing pauses, and the
alarms after it wait; one that is refused is repeated a few times. What is given up is counted and logged, what waits
when the node ends is logged; the alarm itself stays in the learner's list.

With a secret, a post is signed: an HMAC-SHA256 of the time and the body, so that a receiver can refuse other senders
and old posts. A signature is made for each attempt.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from typing import Any, Literal

import httpx
import msgspec

from service.telemetry import BackgroundTasks
from service.text import counted

__all__ = ["Webhook", "WebhookFormat"]

logger = logging.getLogger("rarestream.webhook")

WebhookFormat = Literal["json", "slack"]

_PAUSES = (1.0, 4.0, 16.0, 64.0, 256.0, *[600.0] * 144)  # seconds before each retry: for a day
_REFUSALS = 4  # retries of a request that the receiver refuses
_LATER = (408, 425, 429)  # statuses of the client's errors that are no refusals
_WAITING = 1000  # alarms in the queue; further ones are only logged
_SECONDS = 10.0  # time-out of one attempt
_UNUSABLE = (
    "RARESTREAM_WEBHOOK is set, but the network settings in the environment cannot be used ({error}): correct "
    "NO_PROXY, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE or SSL_CERT_DIR; IPv6 addresses in NO_PROXY have no "
    "brackets"
)


class Webhook:
    """Sends alarms to one address, in order, in the background."""

    def __init__(
        self,
        url: str | None,
        secret: str | None = None,
        form: WebhookFormat = "json",
        background: BackgroundTasks | None = None,
    ) -> None:
        """`url`: None only logs the alarms. `secret`: None signs nothing.

        Raises `ValueError` if network settings in the environment, such as NO_PROXY, prevent any post.
        """
        self._background = background or BackgroundTasks()
        if url is not None:
            _client()  # tried now, because the first alarm may be days away
        self._url = url
        self._secret = secret
        self._form = form
        self.deliveries = 0
        self.losses = 0  # given up, or left out because the queue was full
        self._alarms: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_WAITING)
        self._current: dict[str, Any] | None = None  # the alarm that is being sent
        self._task: asyncio.Task[None] | None = None

    def send(self, learner: str, alarm: dict[str, Any]) -> None:
        """Log an alarm of a learner and queue it; return at once."""
        level = logging.INFO if alarm["state"] == "resolved" else logging.WARNING
        logger.log(level, "%s: %s alarm at %d events is %s", learner, alarm["kind"], alarm["events"], alarm["state"])
        if self._url is None:
            return
        try:
            self._alarms.put_nowait({"learner": learner, **alarm})
        except asyncio.QueueFull:
            self.losses += 1
            logger.error("an alarm of %s is not sent: the queue of %d alarms is full", learner, _WAITING)
            return
        if self._task is None:
            self._task = self._background.keep("post alarms", self._send_all)

    @property
    def waiting(self) -> int:
        """Alarms that are not delivered yet, the one that is being sent included."""
        return self._alarms.qsize() + (self._current is not None)

    async def close(self) -> None:
        """Send no more."""
        if self.waiting:
            logger.error("%s not sent because the node stops", counted(self.waiting, "alarm"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _send_all(self) -> None:
        async with _client() as client:
            while True:
                if self._current is None:  # else the task ended by an error, and has started again
                    self._current = await self._alarms.get()
                await self._send(client, self._current)
                self._current = None

    async def _send(self, client: httpx.AsyncClient, alarm: dict[str, Any]) -> None:
        assert self._url is not None
        body = msgspec.json.encode(alarm if self._form == "json" else {"text": _sentence(alarm)})
        for attempt, pause in enumerate((*_PAUSES, None)):
            refusal = False
            try:
                reply = await client.post(self._url, content=body, headers=self._headers(body))
                reply.raise_for_status()
            except httpx.HTTPStatusError as error:
                status = error.response.status_code
                problem = f"the response was {status}"
                refusal = 400 <= status < 500 and status not in _LATER
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                problem = f"{type(error).__name__}"  # its text may show the address, which may contain a secret
                refusal = isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol))
            else:
                self.deliveries += 1
                return
            if pause is None or (refusal and attempt >= _REFUSALS):
                self.losses += 1
                logger.error("cannot send an alarm of %s: %s", alarm["learner"], problem)
                return
            await asyncio.sleep(pause)

    def _headers(self, body: bytes) -> dict[str, str]:
        """Return the headers of one attempt, with a signature if there is a secret."""
        headers = {"content-type": "application/json"}
        if self._secret:
            moment = str(int(time.time()))
            mac = hmac.new(self._secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
            headers |= {"x-rarestream-timestamp": moment, "x-rarestream-signature": f"v1={mac.hexdigest()}"}
        return headers


def _client() -> httpx.AsyncClient:
    """Return the client that posts. Raises `ValueError` if the settings in the environment cannot be used."""
    try:
        return httpx.AsyncClient(timeout=_SECONDS)
    except (httpx.InvalidURL, ValueError, ImportError, OSError) as error:
        raise ValueError(_UNUSABLE.format(error=f"{type(error).__name__}: {error}")) from None


def _sentence(alarm: dict[str, Any]) -> str:
    """Describe an alarm for a channel of people: `fraud: missing alarm 3 of amount is open, 0.01 before, 1 after`."""
    field = "" if alarm.get("field") is None else f" of {alarm['field']}"
    text = f"{alarm['learner']}: {alarm['kind']} alarm {alarm['number']}{field} is {alarm['state']}, "
    text += f"{alarm['before']:.4g} before, {alarm['after']:.4g} after"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # Slack's control characters
        text = text.replace(character, entity)
    return text

"""Posts news to addresses: drift alarms that are raised, resolved or reopened, and alerts if they are wanted.

    a learner has news -> the node with its lease reads what is behind its bookmarks -> posts -> moves the bookmarks

See `replica.news`. Nothing waits in memory, so a restart loses nothing; if a response is lost, a post arrives twice. A
post that fails is repeated for a day, with growing pauses, and those after it wait; one that is refused is repeated a
few times. What is given up is counted and logged. After each pause the news are read again, because another node may
have posted them, or the learner may be deleted.

With a secret, a post is signed: an HMAC-SHA256 of the time and the body, so that a receiver can refuse other senders
and old posts. A signature is made for each attempt.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import httpx
import msgspec

from service.errors import LearnerGone, LearnerMissing, ServiceError
from service.telemetry import BackgroundTasks

if TYPE_CHECKING:
    from service.engine.replica.news import Post

__all__ = ["NewsSource", "Webhook", "WebhookFormat", "Webhooks"]

logger = logging.getLogger("rarestream.webhook")

WebhookFormat = Literal["json", "slack"]

_PAUSES = (1.0, 4.0, 16.0, 64.0, 256.0, *[600.0] * 144)  # seconds before each retry: for a day
_REFUSALS = 2  # retries of a post that the receiver refuses
_REFUSED = (400, 413, 415, 422)  # statuses about this one post; another, such as 404 or 401, is of the address
_PACE = 1.0  # seconds between two looks for news of a learner
_AGAIN = 2.5  # seconds until the next look if another node has the lease, or the store does not answer
_SECONDS = 10.0  # time-out of one attempt
_UNUSABLE = (
    "RARESTREAM_WEBHOOK is set, but the network settings in the environment cannot be used ({error}): correct "
    "NO_PROXY, HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, SSL_CERT_FILE or SSL_CERT_DIR; IPv6 addresses in NO_PROXY have no "
    "brackets"
)


class NewsSource(Protocol):
    """What of one learner is not posted yet: see `replica.news.News`."""

    learner: str

    async def leads(self) -> bool:
        """Tell whether this node is the one that posts."""
        ...

    async def unposted(self) -> list[Post]:
        """Return what is not posted yet, the oldest first."""
        ...

    async def note_posted(self, post: Post) -> None:
        """Note that all up to this one is posted."""
        ...


class Webhooks:
    """Posts the news of each learner to its address, or to the one for all others."""

    def __init__(
        self, entries: Iterable[tuple[str, str, str]], secret: str | None, background: BackgroundTasks
    ) -> None:
        """`entries`: learner (empty: all others), format and URL; see `Webhook`."""
        self.by_learner: dict[str, Webhook] = {}
        for learner, form, url in entries:
            if learner in self.by_learner:
                learners = learner or "all others"
                logger.warning("RARESTREAM_WEBHOOK has several addresses for %s: the last one counts", learners)
            self.by_learner[learner] = Webhook(url, secret, cast(WebhookFormat, form), background)

    def note(self, source: NewsSource) -> None:
        """Look for news soon."""
        webhook = self.by_learner.get(source.learner, self.by_learner.get(""))
        if webhook is not None:
            webhook.note(source)

    @property
    def trouble(self) -> str | None:
        """What is wrong with an address, for health; None if nothing waits for one."""
        return next((webhook.trouble for webhook in self.by_learner.values() if webhook.trouble), None)

    def total(self, figure: Literal["deliveries", "losses", "waiting"]) -> int:
        """Return a figure of all addresses."""
        return sum(getattr(webhook, figure) for webhook in self.by_learner.values())

    async def close(self) -> None:
        """Post no more. What waits is posted after the next start."""
        for webhook in self.by_learner.values():
            await webhook.close()


class Webhook:
    """Posts the news of learners to one address, in the background."""

    def __init__(
        self,
        url: str,
        secret: str | None = None,
        form: WebhookFormat = "json",
        background: BackgroundTasks | None = None,
    ) -> None:
        """`secret`: None signs nothing.

        Raises `ValueError` if network settings in the environment, such as NO_PROXY, prevent any post.
        """
        self._background = background or BackgroundTasks()
        _client()  # tried now, because the first alarm may be days away
        self._url = url
        self._secret = secret
        self._form = form
        self.deliveries = 0
        self.losses = 0  # given up
        self.waiting = 0  # posts that were read and are not delivered yet
        self._noted: set[NewsSource] = set()  # that may have news
        self._ready: asyncio.Queue[NewsSource] = asyncio.Queue()  # those to look at now
        self._failures: Counter[NewsSource] = Counter()  # of the oldest post of each
        self._problem = ""  # of the last attempt that failed
        self._task: asyncio.Task[None] | None = None

    @property
    def trouble(self) -> str | None:
        """What is wrong with the address, for health; None if nothing waits for it."""
        return f"posts wait for the webhook, which is tried again: {self._problem}" if self._failures else None

    def note(self, source: NewsSource, seconds: float = _PACE) -> None:
        """Look for news in so many seconds."""
        if source in self._noted:
            return
        self._noted.add(source)
        asyncio.get_running_loop().call_later(seconds, self._ready.put_nowait, source)
        if self._task is None:
            self._task = self._background.keep("post news", self._run)

    async def close(self) -> None:
        """Post no more. What waits is posted after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        async with _client() as client:
            while True:
                source = await self._ready.get()
                self._noted.discard(source)
                again: float | None = _AGAIN
                try:
                    again = await self._post_news(client, source)
                finally:
                    self.waiting = 0
                    if again is not None:
                        self.note(source, again)

    async def _post_news(self, client: httpx.AsyncClient, source: NewsSource) -> float | None:
        """Post what is new of a learner; return the seconds after which to look again, or None."""
        try:
            posts = await source.unposted()
            while posts:
                self.waiting = len(posts)
                for post in posts:
                    if not await source.leads():
                        return _AGAIN  # another node posts it, if that node lives
                    pause = await self._attempt(client, source, post.document)
                    if pause is not None:
                        await asyncio.sleep(pause)
                        break
                    await source.note_posted(post)
                    self.waiting -= 1
                else:
                    return 0.0  # there may be more than are listed at once
                posts = await source.unposted()
        except (LearnerGone, LearnerMissing):
            pass
        except ServiceError:  # of the store: health says it
            return _AGAIN
        self._failures.pop(source, None)
        return None

    async def _attempt(self, client: httpx.AsyncClient, source: NewsSource, document: dict[str, Any]) -> float | None:
        """Post one document; return the pause before the next attempt, or None: it is delivered or given up."""
        body = msgspec.json.encode(document if self._form == "json" else {"text": _sentence(document)})
        refusal = False
        try:
            async with asyncio.timeout(_SECONDS):  # those of the client are for each read
                reply = await client.post(self._url, content=body, headers=self._headers(body))
            reply.raise_for_status()
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            problem = f"the response was {status}"
            refusal = status in _REFUSED
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            problem = f"{type(error).__name__}"  # its text may show the address, which may contain a secret
            refusal = isinstance(error, (httpx.InvalidURL, httpx.UnsupportedProtocol))
        else:
            self._failures.pop(source, None)
            self.deliveries += 1
            return None
        failures = self._failures[source]
        self._problem = problem
        if failures < len(_PAUSES[: _REFUSALS if refusal else None]):
            if not self._failures:
                logger.warning("%s: posts wait for the webhook, which is tried again: %s", document["learner"], problem)
            self._failures[source] += 1
            return _PAUSES[failures]
        self._failures.pop(source, None)
        self.losses += 1
        logger.error("cannot post an %s of %s: %s", document["type"], document["learner"], problem)
        return None

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


def _sentence(document: dict[str, Any]) -> str:
    """Describe a post for a channel of people: `fraud: missing alarm 3 of amount is open, 0.01 before, 1 after`."""
    if document["type"] == "alert":
        text = f"{document['learner']}: alert {document['id']}"
        if document["probability"] is not None:
            text += f", probability {document['probability']:.3g}"
    else:
        field = "" if document.get("field") is None else f" of {document['field']}"
        text = f"{document['learner']}: {document['kind']} alarm {document['number']}{field} is {document['state']}, "
        text += f"{document['before']:.4g} before, {document['after']:.4g} after"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):  # Slack's control characters
        text = text.replace(character, entity)
    return text

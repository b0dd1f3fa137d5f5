"""Settings of a node: from the environment (`RARESTREAM_STORE=...`), overridden by the command line."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["ACKS", "LEARNERS", "PREFIX", "Settings", "node_address"]

ACKS = r"^(memory|aof|replicas:[1-9][0-9]?)$"  # see `service.storage.redis.durability`
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LEARNER = rf"(\*|{_NAME})"
_ADDRESS = rf"({_NAME}=)?((json|slack)\+)?https?://[^/\s]\S*"
WEBHOOKS = rf"^({_ADDRESS}( +{_ADDRESS})*)?$"
LEARNERS = rf"^( *{_LEARNER} *(, *{_LEARNER} *)*)?$"  # names, see `service.names.PATTERN`, or * for all
PREFIX = r"^[A-Za-z0-9._-]{1,64}$"  # see `service.storage.redis.key_names`


def node_address(text: str) -> str:
    """Normalise the address of a node, http://host:port.

    Brackets around an IPv4 address are removed. So http://[address]:port works for both kinds of addresses. Raises
    `ValueError` for another scheme, a path, or an invalid host or port.
    """
    label = "[A-Za-z0-9_-]{1,63}"
    host_and_port = rf"(?:\[([0-9A-Fa-f:.]+)\]|({label}(?:\.{label})*\.?))(?::([0-9]{{1,5}}))?"
    actual = re.fullmatch(f"(https?)://{host_and_port}", text)
    try:
        if actual is None:
            raise ValueError
        scheme, number, name, port = actual.groups()
        if name and (len(name) > 253 or (re.fullmatch("[0-9.]+", name) and not ipaddress.IPv4Address(name))):
            raise ValueError
        if port is not None and not 0 < int(port) < 2**16:
            raise ValueError
        address = ipaddress.ip_address(number) if number else None
    except ValueError:
        raise ValueError(
            f"is {text!r}; expected an address such as http://10.0.0.7:8000 or http://[fd00::7]:8000, without a path"
        ) from None
    host = name if address is None else f"[{address}]" if address.version == 6 else str(address)
    return f"{scheme}://{host.lower()}" + (f":{int(port)}" if port else "")


class Settings(BaseSettings):
    """All settings with their defaults and bounds."""

    model_config = SettingsConfigDict(env_prefix="RARESTREAM_", extra="forbid", frozen=True)

    store: str = Field(
        default="sqlite:///rarestream.db",
        description="where logs and snapshots are stored: sqlite:///path, redis://..., or memory: for tests",
    )
    store_prefix: str | None = Field(
        default=None,
        description="prefix of all keys in Redis, rarestream if unset; services with different prefixes can share one "
        "Redis",
    )
    acks: str = Field(
        default="memory",
        description="when Redis acknowledges an event: memory (received), aof (on disk) or replicas:n (on n replicas)",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on; `::`: every IPv6 and IPv4 address")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    keys: str | None = Field(default=None, description="file of API keys; without it requests need no key")
    insecure: bool = Field(default=False, description="allow listening beyond loopback without API keys")
    tls_certificate: str | None = Field(default=None, description="PEM file of the certificate chain; enables https")
    tls_key: str | None = Field(
        default=None, description="PEM file of the private key, if it is not in the certificate file"
    )
    hosts: str | None = Field(
        default=None,
        description="accepted Host names, separated by commas; IP addresses, localhost and the host of advertise are "
        "always accepted",
    )
    cors_origins: str | None = Field(
        default=None, description="other origins whose web pages may call the service, separated by commas"
    )
    workers: int = Field(
        default=1, ge=1, le=256, description="server processes behind the port; more than one need Redis"
    )
    worker_seconds: float = Field(
        default=30.0,
        ge=5.0,
        description="seconds without a heartbeat after which a worker process is replaced",
    )
    worker_start_seconds: float = Field(
        default=600.0,
        ge=5.0,
        description="seconds without progress at its start after which a worker process is replaced",
    )
    max_learners: int = Field(default=10_000, ge=1, description="most learners and groups on this node")
    max_resident: int = Field(
        default=1000, ge=1, description="most learners in memory; the least recently used are evicted to the store"
    )
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024, description="most bytes of a request body")
    max_import_bytes: int = Field(
        default=256 * 2**20,
        ge=1024,
        le=512 * 10**6,
        description="most bytes of an imported state, and of all imports at once",
    )
    max_buffered_bytes: int = Field(
        default=128 * 2**20, ge=1024, description="most bytes of request bodies in progress"
    )
    body_seconds: float = Field(
        default=30.0,
        gt=0,
        description="seconds allowed for the headers and for the body of a request, and until a new connection is "
        "authenticated",
    )
    max_handshakes: int = Field(
        default=256,
        ge=1,
        description="most unauthenticated connections of one address, per process; a further one closes the oldest",
    )
    keep_alive_seconds: int = Field(
        default=75,
        ge=1,
        description="seconds after which an idle connection is closed; a proxy in front must close it earlier",
    )
    shutdown_seconds: int = Field(
        default=15, ge=1, description="seconds that requests in progress get at shutdown before they are answered 503"
    )
    queue_bytes: int = Field(
        default=64 * 2**20, ge=1024, description="most bytes of events waiting in a learner's queue"
    )
    record_events: int = Field(default=8192, ge=1, description="most waiting events combined into one log record")
    snapshot_events: int = Field(default=100_000, ge=1, description="events after which a snapshot is saved")
    snapshot_seconds: float = Field(
        default=60.0, gt=0, description="seconds after which a snapshot of a changed learner is saved"
    )
    snapshots_kept: int = Field(
        default=3, ge=1, description="snapshots kept per learner, but at least a new one and two that read back intact"
    )
    trim_log: bool = Field(default=True, description="delete log records older than the oldest kept snapshot")
    follow_seconds: float = Field(
        default=1.0, gt=0, description="seconds between two checks for learners and records of other nodes"
    )
    replication: int = Field(default=0, ge=0, description="nodes over one Redis that host each learner; 0: all nodes")
    advertise: str | None = Field(
        default=None,
        description="address at which other nodes reach this one, e.g. http://10.0.0.7:8000; for replication",
    )
    elsewhere: Literal["proxy", "redirect"] = Field(
        default="proxy",
        description="how to handle requests for learners of other nodes: proxy (forward them) or redirect (answer 307)",
    )
    forward_seconds: float = Field(
        default=30.0, gt=0, description="seconds to wait for the answer to a forwarded request"
    )
    at_least_seconds: float = Field(
        default=5.0, gt=0, description="most seconds that a request waits for the position in `at_least`"
    )
    max_streams: int = Field(
        default=256, ge=0, description="most open streams of live metrics; at most a quarter of ulimit -n"
    )
    ws_connections: int = Field(default=256, ge=0, description="most open websockets; at most a quarter of ulimit -n")
    ws_credit: int = Field(default=1024, ge=1, description="most unanswered messages per websocket")
    ws_message_bytes: int = Field(default=4 * 2**20, ge=1024, description="most bytes of a websocket message")
    ws_stall_seconds: float = Field(
        default=10.0,
        gt=0,
        description="seconds without reading after which a client of a websocket, event stream or NDJSON reply is "
        "disconnected",
    )
    webhook: str | None = Field(
        default=None,
        description="URL to which drift alarms are posted as JSON; with blanks between them also NAME=URL, the URL for "
        "one learner, and slack+URL, the URL of an incoming webhook of Slack",
    )
    webhook_alerts: str | None = Field(
        default=None,
        description="learners whose alerts are posted there, too: names with commas between them, or `*` for all",
    )
    webhook_secret: str | None = Field(
        default=None, description="secret that signs what is posted by HMAC-SHA256", repr=False
    )
    webhook_format: Literal["json", "slack"] = Field(
        default="json", description="body of what is posted: json, or slack for an incoming webhook of Slack"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="lowest level logged to stderr: debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = Field(default="text", description="format of log lines: text or json")
    log_requests: Literal["all", "errors"] = Field(
        default="all", description="which requests are logged: all, or only errors"
    )
    log_lines_per_second: int = Field(
        default=1000,
        ge=1,
        description="most request lines per second, separately for update, predict and labels, for other requests, "
        "and for errors",
    )
    metrics_learners: int = Field(
        default=500, ge=0, description="most learners with series in `/metrics`: the most recently used ones in memory"
    )
    threads: int = Field(default=2, ge=1, description="threads for batches that take over a millisecond")

    @field_validator("*", mode="before")
    @classmethod
    def _trim(cls, value: Any) -> Any:
        """Remove blanks and line ends at both ends, which files and shells add."""
        return value.strip() if isinstance(value, str) else value

    @field_validator("advertise")
    @classmethod
    def _check_advertise(cls, advertise: str | None) -> str | None:
        return None if advertise is None else node_address(advertise)

    @field_validator("webhook")
    @classmethod
    def _check_webhook(cls, webhook: str | None) -> str | None:
        if webhook and not re.fullmatch(WEBHOOKS, webhook):  # it may hold a secret
            raise ValueError(
                "is not a URL to post to; expected http://... or https://..., with blanks between them also NAME=URL "
                "and slack+URL"
            )
        return webhook

    @field_validator("webhook_alerts")
    @classmethod
    def _check_webhook_alerts(cls, learners: str | None) -> str | None:
        if learners is not None and not re.fullmatch(LEARNERS, learners):
            raise ValueError(f"is {learners!r}; expected names of learners with commas between them, or * for all")
        return learners

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, origins: str | None) -> str | None:
        for item in (origins or "").split(","):
            if item.strip() and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@]+/?", item.strip()):
                raise ValueError(f"has {item.strip()!r}; expected origins such as https://example.com, without a path")
        return origins

    @field_validator("store_prefix")
    @classmethod
    def _check_prefix(cls, prefix: str | None) -> str | None:
        if prefix is not None and not re.fullmatch(PREFIX, prefix):
            raise ValueError(f"is {prefix!r}; expected up to 64 letters, digits, dots, dashes or underscores")
        return prefix

    @field_validator("acks")
    @classmethod
    def _check_acks(cls, acks: str) -> str:
        if not re.fullmatch(ACKS, acks):
            raise ValueError(f"is {acks!r}; expected memory, aof or replicas:n, n from 1 to 99")
        return acks

    @property
    def webhook_entries(self) -> list[tuple[str, str, str]]:
        """The addresses of webhooks: the learner (empty: all others), the format, and the URL."""
        entries = []
        for entry in (self.webhook or "").split():
            prefix, scheme, rest = re.fullmatch(r"(.*?)(https?://)(.*)", entry).groups()  # type: ignore[union-attr]
            learner, _, form = prefix.rpartition("=")
            entries.append((learner, form.removesuffix("+") or self.webhook_format, scheme + rest))
        return entries

    def posts_alerts(self, learner: str) -> bool:
        """Tell whether the alerts of a learner are posted."""
        return any(name.strip() in ("*", learner) for name in (self.webhook_alerts or "").split(","))

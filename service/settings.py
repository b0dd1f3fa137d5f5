"""Settings of a node: from the environment (`RARESTREAM_STORE=...`), overridden by the command line."""

from __future__ import annotations

import ipaddress
import re
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

__all__ = ["ACKS", "Settings", "node_address"]

ACKS = r"^(memory|aof|replicas:[1-9][0-9]?)$"  # what a Redis store waits for, see `redis_acks`


def node_address(text: str) -> str:
    """Normalise the address of a node, http://host:port: an IPv4 address in brackets loses them.

    So whoever knows an address of either kind, and not which, writes http://[address]:port. `ValueError` where it is
    none: another scheme, a path, a host or a port that cannot be.
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
    """Everything that can be set, with its default and its bound."""

    model_config = SettingsConfigDict(env_prefix="RARESTREAM_", extra="forbid", frozen=True)

    store: str = Field(
        default="sqlite:///rarestream.db",
        description="where logs and snapshots live: sqlite:///path, redis://, or memory: for tests",
    )
    acks: str = Field(
        default="memory",
        description="what Redis has to have done with an event before it is acknowledged: memory, aof or replicas:n",
    )
    host: str = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8000, ge=0, le=65535, description="port to listen on; 0 takes a free one")
    keys: str | None = Field(
        default=None, description="file of the keys that requests need; without one nobody needs any"
    )
    insecure: bool = Field(default=False, description="listen beyond loopback though nobody needs a key")
    tls_certificate: str | None = Field(default=None, description="PEM file of the certificate chain: serves https")
    tls_key: str | None = Field(default=None, description="PEM file of its private key, where it is a file of its own")
    hosts: str | None = Field(
        default=None,
        description="names in Host headers that are taken, by commas; addresses, localhost and advertise's always are",
    )
    cors_origins: str | None = Field(
        default=None, description="origins whose pages may call, by commas; none but its own if not set"
    )
    workers: int = Field(default=1, ge=1, le=256, description="processes behind the port, over one Redis")
    worker_seconds: float = Field(
        default=30.0,
        ge=5.0,
        description="without a sign of life of one of several processes, after which it is replaced",
    )
    worker_start_seconds: float = Field(
        default=600.0,
        ge=5.0,
        description="in which one of several processes gets no further with its start, after which it is replaced",
    )
    max_learners: int = Field(default=10_000, ge=1, description="learners and groups on this node")
    max_resident: int = Field(
        default=1000, ge=1, description="learners in memory; those used longest ago are swapped out to the store"
    )
    max_body_bytes: int = Field(default=16 * 2**20, ge=1024, description="of one request")
    max_import_bytes: int = Field(
        default=256 * 2**20, ge=1024, le=512 * 10**6, description="of one imported state, and of all at once"
    )
    max_buffered_bytes: int = Field(
        default=128 * 2**20, ge=1024, description="of request bodies that are not answered yet"
    )
    body_seconds: float = Field(default=30.0, gt=0, description="in which a request's head has to come, and its body")
    shutdown_seconds: int = Field(
        default=15, ge=1, description="that requests under way get at a stop to end, before they are answered 503"
    )
    queue_bytes: int = Field(default=64 * 2**20, ge=1024, description="of events that wait in one learner's queue")
    record_events: int = Field(default=8192, ge=1, description="waiting events that are put into one record of the log")
    snapshot_events: int = Field(default=100_000, ge=1, description="events after which a snapshot is taken")
    snapshot_seconds: float = Field(
        default=60.0, gt=0, description="seconds after which a changed learner is snapshotted"
    )
    snapshots_kept: int = Field(default=3, ge=1, description="snapshots retained per learner")
    trim_log: bool = Field(
        default=True, description="drop log records that are older than the oldest retained snapshot"
    )
    follow_seconds: float = Field(
        default=1.0, gt=0, description="how often other nodes' learners and records are looked for"
    )
    replication: int = Field(
        default=0, ge=0, description="nodes that host each learner, of those over one Redis; 0: all of them"
    )
    advertise: str | None = Field(
        default=None,
        description="address at which other nodes reach this one, such as http://10.0.0.7:8000; for replication",
    )
    elsewhere: Literal["proxy", "redirect"] = Field(
        default="proxy",
        description="what becomes of a request for a learner that another node hosts: passed on, or answered with 307",
    )
    forward_seconds: float = Field(
        default=30.0, gt=0, description="in which a host has to answer a request that is passed on to it"
    )
    at_least_seconds: float = Field(
        default=5.0, gt=0, description="that a request waits at most for the position which it wants to be `at_least`"
    )
    max_streams: int = Field(default=256, ge=0, description="streams of live figures that are open at once")
    ws_connections: int = Field(default=256, ge=0, description="websockets that are open at once")
    ws_credit: int = Field(default=1024, ge=1, description="messages of one websocket that may be unanswered")
    ws_message_bytes: int = Field(default=4 * 2**20, ge=1024, description="of one message of a websocket")
    ws_stall_seconds: float = Field(
        default=10.0,
        gt=0,
        description="after which a client that reads nothing of a websocket, a stream, or a reply in lines, is dropped",
    )
    webhook: str | None = Field(default=None, description="address that drift alarms are posted to, as JSON")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least level that is logged, on stderr: debug, info, warning or error"
    )
    log_format: Literal["text", "json"] = Field(default="text", description="how lines are written: text or json")
    log_requests: Literal["all", "errors"] = Field(
        default="all", description="which requests have a line in the log: all, or only errors"
    )
    log_lines_per_second: int = Field(
        default=1000, ge=1, description="lines a second: of hot requests, of others, and of those that fail, each"
    )
    metrics_learners: int = Field(
        default=500, ge=0, description="learners that `/metrics` has series of: of those in memory the last used"
    )
    threads: int = Field(default=2, ge=1, description="threads that learn batches of over a millisecond")

    @field_validator("advertise")
    @classmethod
    def _an_address(cls, advertise: str | None) -> str | None:
        return None if advertise is None else node_address(advertise)

    @field_validator("webhook")
    @classmethod
    def _an_address_to_post_to(cls, webhook: str | None) -> str | None:
        if webhook and not re.match("https?://[^/]", webhook):
            raise ValueError("is no address to post to; expected http://... or https://...")  # it may hold a secret
        return webhook

    @field_validator("cors_origins")
    @classmethod
    def _origins(cls, origins: str | None) -> str | None:
        for item in (origins or "").split(","):
            if item.strip() and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/?#@]+/?", item.strip()):
                raise ValueError(f"has {item.strip()!r}; expected origins such as https://example.com, without a path")
        return origins

    @field_validator("acks")
    @classmethod
    def _known_acks(cls, acks: str) -> str:
        if not re.fullmatch(ACKS, acks):
            raise ValueError(f"is {acks!r}; expected memory, aof or replicas:n, n from 1 to 99")
        return acks

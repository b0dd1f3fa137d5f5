"""Who may do what: keys, permissions, and the guard in front of every request. Start with `guard`."""

from service.auth.addresses import plain_address
from service.auth.guard import Guard
from service.auth.handshakes import GRACE, Handshake, Handshakes
from service.auth.keys import LIMITS, SCOPES, Key, Limits, Scope, changing, load, new_key
from service.auth.permissions import NEEDED, UNRESTRICTED, Permissions

__all__ = [
    "GRACE",
    "LIMITS",
    "NEEDED",
    "SCOPES",
    "UNRESTRICTED",
    "Guard",
    "Handshake",
    "Handshakes",
    "Key",
    "Limits",
    "Permissions",
    "Scope",
    "changing",
    "load",
    "new_key",
    "plain_address",
]

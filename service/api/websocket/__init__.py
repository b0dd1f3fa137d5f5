"""Websocket streams of events. Start with `connection`."""

from service.api.websocket.handshake import Sockets
from service.api.websocket.transport import EXTENSION, Message, Transport

__all__ = ["EXTENSION", "Message", "Sockets", "Transport"]

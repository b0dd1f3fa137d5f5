"""Processes, sockets and protocols.

Start with `run`, one process, or `supervisor`, several. What is exported here is light; `run` and `worker` load the
whole application, so they are imported as modules.
"""

from service.server.listen import CannotServe, listen, mask_passwords
from service.server.supervisor import supervise

__all__ = ["CannotServe", "listen", "mask_passwords", "run", "supervise"]

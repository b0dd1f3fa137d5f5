"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell starts what runs in its background with Ctrl-C ignored, and processes that tests start would take that over.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

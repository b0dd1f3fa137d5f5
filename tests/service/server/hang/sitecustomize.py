"""A worker that hangs when it is told to: Python imports this before anything else where its folder is in PYTHONPATH.

`HANG` names a file. At SIGUSR1 the main thread, and so the event loop, stands still for as long as there is that file;
`HANG_IMPORT` names a module whose import does the same.
"""

import os
import signal
import sys
import time


def _hang(*_: object) -> None:
    while os.path.exists(os.environ["HANG"]):
        time.sleep(0.01)


class _Importing:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Find nothing, late."""
        if name == os.environ.get("HANG_IMPORT"):
            _hang()


if "HANG" in os.environ and any("service.server.worker" in argument for argument in sys.orig_argv):
    signal.signal(signal.SIGUSR1, _hang)
    sys.meta_path.insert(0, _Importing)

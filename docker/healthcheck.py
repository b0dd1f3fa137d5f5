#!/usr/bin/env python3
"""Exits with 0 where the service answers 200 at /v1/health/ready: the one in this container, or one that is named.

It needs no key: health is told to anyone. A certificate is not checked, since none names 127.0.0.1 and nothing secret
is sent; a proxy of the environment is not used, since the request is for this container.
"""

import os
import ssl
import sys
import urllib.request


def here() -> str:
    """The address in this container, by the service's own settings."""
    scheme = "https" if os.environ.get("RARESTREAM_TLS_CERTIFICATE") else "http"
    return f"{scheme}://127.0.0.1:{os.environ.get('RARESTREAM_PORT', '8000')}/v1/health/ready"


def main() -> None:
    """Raises, and so exits with 1, for anything but a 200."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    https = urllib.request.HTTPSHandler(context=unchecked)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    with opener.open(sys.argv[1] if len(sys.argv) > 1 else here(), timeout=3):
        pass


if __name__ == "__main__":
    main()

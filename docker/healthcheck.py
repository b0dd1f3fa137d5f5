#!/usr/bin/env python3
"""Exit with status 0 if the service answers 200 at /v1/health/ready: the one in this container, or at the given URL.

It needs no key, because health is public. It does not verify the certificate: no certificate names 127.0.0.1, and the
request has no secrets. It ignores proxies of the environment, because the request stays in this container.
"""

import os
import ssl
import sys
import urllib.request


def address() -> str:
    """Return the URL in this container, from the settings of the service."""
    scheme = "https" if os.environ.get("RARESTREAM_TLS_CERTIFICATE") else "http"
    return f"{scheme}://127.0.0.1:{os.environ.get('RARESTREAM_PORT', '8000')}/v1/health/ready"


def main() -> None:
    """Request the URL; raise an error, and so exit with status 1, for anything but a 200."""
    unchecked = ssl.create_default_context()
    unchecked.check_hostname = False
    unchecked.verify_mode = ssl.CERT_NONE
    https = urllib.request.HTTPSHandler(context=unchecked)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    with opener.open(sys.argv[1] if len(sys.argv) > 1 else address(), timeout=3):
        pass


if __name__ == "__main__":
    main()

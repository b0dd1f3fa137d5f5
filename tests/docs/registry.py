"""What tests do that install something: where no registry of packages answers, they cannot tell."""

from __future__ import annotations

import re

import pytest

__all__ = ["skip_without_registry"]


def skip_without_registry(errors: str, package: str) -> None:
    """Skip the test where pip, which failed and said this, found nothing at all under the name that it was asked for.

    A version or an extra that does not exist where others do is a failure.
    """
    if re.search(r"\(from versions: none\)|ConnectionError", errors):
        pytest.skip(f"no registry of packages has {package} here")

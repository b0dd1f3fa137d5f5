"""A browser for the tests of the dashboard: Chromium from PATH, driven by Playwright; without one they are skipped.

A page fails its test when the browser's console has an error that the test did not expect, when a script throws, or
when a request goes to any host but the service.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.dashboard.serving import Serving
from tests.harness.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.async_api import Browser, ConsoleMessage, Error, Page, Request, Route

__all__ = ["Opener", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PATIENCE = 1000 * PATIENCE  # milliseconds to wait for an element


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder is marked, and shares the browser's event loop."""
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.browser)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def chromium() -> dict[str, Any]:
    """How Playwright is to start the one on PATH; its path is None where there is none."""
    binary = next(filter(None, map(shutil.which, _NAMES)), None)
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # which Chromium refuses to have as root
    return {"executable_path": binary, "args": arguments}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    """One Chromium for all tests."""
    how = chromium()
    if how["executable_path"] is None:
        pytest.skip(f"no browser: none of {', '.join(_NAMES)} is on PATH; on Debian: apt-get install chromium")
    playwright = pytest.importorskip("playwright.async_api", reason="no playwright: pip install '.[integration]'")
    async with playwright.async_playwright() as driver:
        playwright.expect.set_options(timeout=_PATIENCE)
        started = await driver.chromium.launch(**how)
        yield started
        await started.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Serving]:  # noqa: ARG001 - may skip
    """Start the service on a new store for the tests of one module, if there is a browser."""
    with Serving(tmp_path_factory.mktemp("served")) as serving:
        yield serving


class Opener:
    """Opens pages of a service, and holds against them what they must not do."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.requests: list[str] = []  # paths with their queries
        self.expected: tuple[str, ...] = ()  # parts of complaints that belong to the test
        # given in place of the service, by pattern; the newest that fits. A server without keys lets all be done
        self.replies: dict[str, Callable[[Route], Awaitable[None]]] = {}

    async def __call__(self, base: str, place: str = "#/", *, width: int = 1440, scheme: str = "light") -> Page:
        """Open a place of the dashboard in a new browser context."""
        context = await self._browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            timezone_id="Asia/Tokyo",
            locale="en-GB",
        )
        context.set_default_timeout(_PATIENCE)
        page = await context.new_page()
        page.on("console", self._note_message)
        page.on("pageerror", self._thrown)
        page.on("request", self._record_request)
        for pattern, reply in self.replies.items():
            await page.route(pattern, reply)
        await page.goto(f"{base}/{place}")
        return page

    def _note_message(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.text} {message.location.get('url', '')}")

    def _thrown(self, error: Error) -> None:
        self.complaints.append(str(error))

    def _record_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in ("data", "blob"):
            self.hosts.add(address.netloc)
            self.requests.append(f"{address.path}?{address.query}" if address.query else address.path)

    def unexpected(self) -> list[str]:
        """List the complaints that the test does not expect."""
        return [complaint for complaint in self.complaints if not any(part in complaint for part in self.expected)]

    async def close(self) -> None:
        """Close all pages."""
        for context in self._browser.contexts:
            await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def visit(browser: Browser) -> AsyncIterator[Opener]:
    """Open pages; check after the test that they had no errors and called only the service."""
    opener = Opener(browser)
    yield opener
    await opener.close()
    assert opener.unexpected() == []
    assert all(host.startswith("127.0.0.1:") for host in opener.hosts), opener.hosts
    assert len(opener.hosts) <= 1, opener.hosts

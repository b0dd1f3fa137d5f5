"""Take README's picture of a learner's page at the end of the demo: `python -m tests.dashboard.picture`.

It needs a Chromium on PATH, as the tests of the dashboard do, and some minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.dashboard.conftest import chromium
from tests.docs.documents import ROOT

PICTURE = ROOT / "docs" / "dashboard.png"
SIZE = {"width": 1440, "height": 800}
LEARNER = "demo-cbr"
EVENTS = 200_000


def take(url: str, file: Path) -> None:
    """Look at the page for as long as it needs, and keep what is seen."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(**chromium())
        page = browser.new_page(viewport=SIZE, color_scheme="light", locale="en-US", timezone_id="UTC")
        page.goto(f"{url}/#/learners/{LEARNER}")
        page.locator(".js-plotly-plot .main-svg").nth(2).wait_for()  # the charts that fit
        page.wait_for_timeout(3000)  # fonts, and figures of another second
        page.screenshot(path=file)
        browser.close()


def main() -> None:
    """Run the demo to its end, as fast as it goes."""
    options = ["--port", "0", "--json", "--rate", "0", "--events", str(EVENTS)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "service", "demo", "--store", f"sqlite:///{folder}/demo.db", *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
            assert demo.stdout is not None
            url = ""
            learnt: dict[str, int] = {}
            for line in demo.stdout:
                message = json.loads(line)
                if message["event"] == "ready":
                    url, learnt = message["url"], dict.fromkeys(message["learners"], 0)
                elif message["event"] == "figures":
                    learnt[message["name"]] = message["events"]
                    if min(learnt.values()) == EVENTS:
                        break
            take(url, PICTURE)
            demo.terminate()
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

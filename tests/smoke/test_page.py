"""A learner's page in Chromium, with every chart drawn."""

from __future__ import annotations

import pytest

from tests.dashboard.conftest import Opener
from tests.dashboard.serving import Serving, events

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CHARTS = {
    *("ranking", "decisions", "threshold", "positives", "rate", "coverage", "delay"),
    *("roc", "precision-recall", "scores", "calibration"),
}


async def test_every_chart_of_a_page_is_drawn(served: Serving, visit: Opener) -> None:
    served.create("fraud", window=1000)
    served.feed("learners/fraud", 1500)
    for first in range(2000, 2400, 100):  # scored first, labelled 100 seconds later
        rows = events(first, first + 100)
        labels = [{"id": row["id"], "label": row["label"], "time": row["time"] + 100} for row in rows]
        unlabelled = [{key: row[key] for key in ("id", "time", "x")} for row in rows]
        served.http.post("/learners/fraud/predict", json={"events": unlabelled}).raise_for_status()
        served.http.post("/learners/fraud/labels", json={"events": labels}).raise_for_status()
    page = await visit(served.url, "#/learners/fraud")
    figures = page.locator("figure[data-chart]")
    await figures.last.wait_for()
    assert set(await figures.evaluate_all("all => all.map((figure) => figure.dataset.chart)")) == CHARTS
    for name in CHARTS:
        figure = page.locator(f"figure[data-chart={name}]")
        await figure.scroll_into_view_if_needed()  # charts out of sight are not drawn
        await figure.locator(".plot :is(.js-line, .point)").first.wait_for(state="attached")

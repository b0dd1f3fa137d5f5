"""The dashboard's files over plain HTTP: types, caching, the security policy, and that the page asks no other host."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import itertools
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from typer.testing import CliRunner

from learners.config import Config
from learners.metrics.binary import HISTORY_COLUMNS
from learners.metrics.ordinal import ORDINAL_HISTORY
from service.api import static
from service.cli.main import app as command_line

DASHBOARD = Path(static.__file__).parents[1] / "dashboard"
MODULES = sorted(DASHBOARD.glob("*.js"))
STYLES = sorted(DASHBOARD.glob("*.css"))
PLOTLY = importlib.metadata.version("plotly")
AS_TEXT = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    app = FastAPI()
    app.include_router(static.router)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        yield client


@pytest.mark.parametrize("file", [DASHBOARD / "index.html", *MODULES, *STYLES], ids=lambda file: file.name)
async def test_a_file_is_served_and_revalidated(client: AsyncClient, file: Path) -> None:
    page = file.name == "index.html"
    path = "/" if page else f"/static/{file.name}"
    reply = await client.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == ("text/html; charset=utf-8" if page else AS_TEXT[file.suffix])
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-content-type-options"] == "nosniff"
    if page:
        assert "{{" not in reply.text
    else:
        assert reply.content == static._STATIC[file.name].body

    etag = reply.headers["etag"]
    for expected in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await client.get(path, headers={"If-None-Match": expected})
        assert (again.status_code, again.content) == (304, b""), expected
        assert again.headers["etag"] == etag
        assert again.headers.get("content-security-policy") == reply.headers.get("content-security-policy")
    assert (await client.get(path, headers={"If-None-Match": '"other"'})).status_code == 200

    head = await client.head(path)
    assert head.status_code == 200
    assert head.headers["etag"] == etag


async def test_the_page_allows_no_foreign_and_no_inline_script(client: AsyncClient) -> None:
    policy = dict(
        directive.split(" ", 1) for directive in (await client.get("/")).headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy  # so that default-src rules scripts: neither inline nor eval
    assert "connect-src" not in policy
    assert "unsafe" not in "".join(policy.values())
    nothing = base64.b64encode(hashlib.sha256(b"").digest()).decode()
    assert policy["style-src"] == f"'self' 'sha256-{nothing}'"  # of our files; inline, an empty style and no other
    assert policy["img-src"] == "'self' data: blob:"
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"


async def test_the_plotly_bundle_is_served_and_cached_by_version(client: AsyncClient) -> None:
    page = (await client.get("/")).text
    path = f"static/plotly.min.js?v={PLOTLY}"
    assert f'data-plotly="{path}"' in page

    bundle = await client.get(f"/{path}")
    assert bundle.status_code == 200
    assert bundle.headers["content-type"] == "text/javascript; charset=utf-8"
    assert bundle.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert bundle.headers["x-content-type-options"] == "nosniff"
    assert "plotly.js v" in bundle.text[:200]

    # An address that names another version, or none, must not pin this bundle in a browser for a year.
    for other in ("/static/plotly.min.js", "/static/plotly.min.js?v=0.0.1"):
        assert (await client.get(other)).headers["cache-control"] == "no-cache"


async def test_no_other_file_of_the_directory_is_served(client: AsyncClient) -> None:
    for path in (
        "/static/index.html",
        "/static/",
        "/static/__init__.py",
        "/static/../pages.py",
        "/static/%2e%2e/pages.py",
    ):
        assert (await client.get(path)).status_code == 404, path


async def test_the_pages_are_not_in_the_openapi_document(client: AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json()["paths"] == {}


@pytest.mark.integration
def test_plotly_package_is_not_imported() -> None:
    seen = subprocess.run(
        [sys.executable, "-c", "import sys, service.api.static; print('plotly' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=DASHBOARD.parent.parent,
    )
    assert seen.stdout.strip() == "False"


def test_a_missing_bundle_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(RuntimeError, match="plotly>=6"):
        static._plotly_bundle()


def test_the_map_style_of_plotly_is_suppressed() -> None:
    """Plotly's bundle adds it where no element has its id: the policy would refuse it, with an error in the console."""
    actual = static._map_style(static._BUNDLE.read_bytes())
    assert actual
    assert f'<template id="{actual.decode()}"></template>' in static._PAGE.body.decode()
    assert static._map_style(b"a bundle without maps") == b""


@pytest.mark.parametrize("file", [DASHBOARD / "index.html", *MODULES, *STYLES], ids=lambda file: file.name)
def test_files_reference_no_other_host(file: Path) -> None:
    names = re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+|@import|\burl\(", file.read_text())
    assert set(names) <= {"http://www.w3.org"}  # which SVG's elements are named by, and nobody asks
    assert names == [] or file.name == "dom.js"


def test_page_has_no_inline_script_or_style() -> None:
    page = (DASHBOARD / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.name)
def test_modules_never_parse_names_as_markup_or_code(module: Path) -> None:
    """Names of learners come from users: nothing in the modules may parse a string as markup or as code."""
    parsing = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|createContextualFragment"
    parsing += r"|\beval\b|\bFunction\(|localStorage|document\.cookie"
    assert re.findall(parsing, module.read_text()) == []


@pytest.mark.parametrize("module", MODULES, ids=lambda file: file.name)
def test_modules_import_existing_names(module: Path) -> None:
    for names, source in re.findall(r'^import (?:\{([^}]*)\}|\* as \w+) from "\./([\w.]+)";', module.read_text(), re.M):
        text = (DASHBOARD / source).read_text()
        exported = set(re.findall(r"^export (?:async )?(?:function|class|const) (\w+)", text, re.MULTILINE))
        assert {name.strip() for name in names.split(",") if name.strip()} <= exported, source
    assert len(module.read_text().splitlines()) <= 400


def test_metrics_drawn_over_time_are_in_the_history() -> None:
    module = (DASHBOARD / "history_charts.js").read_text()
    parts = dict(re.findall(r"^const (CLASSES|RANKS|COMMON) = \[(.*?)^\];", module, re.MULTILINE | re.DOTALL))
    columns = {
        name: set(re.findall(r'column: "(\w+)"', part))
        | {f"since_start_{figure}" for figure in re.findall(r'since: "(\w+)"', part)}
        for name, part in parts.items()
    }
    assert columns["CLASSES"] | columns["COMMON"] | {"auc_low", "auc_high", "positives"} <= set(HISTORY_COLUMNS)
    assert columns["RANKS"] | columns["COMMON"] <= set(ORDINAL_HISTORY)
    assert {"auc", "f1", "precision", "recall", "threshold", "since_start_auc", "since_start_f1"} <= columns["CLASSES"]


def colours(scheme: str) -> dict[str, str]:
    """Return the style sheet's colours by name, of the light or the dark theme."""
    light, dark = re.findall(r":root \{(.*?)\}", (DASHBOARD / "theme.css").read_text(), re.DOTALL)
    named = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", light))
    return named if scheme == "light" else named | dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", dark))


def contrast(a: str, b: str) -> float:
    """Return the contrast of two colours, from 1 to 21, as WCAG 2 defines it."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_have_enough_contrast(scheme: str) -> None:
    actual = colours(scheme)
    for ground in ("page", "panel"):
        for text in ("text", "quiet", "link", "good", "bad"):
            assert contrast(actual[text], actual[ground]) >= 4.5, (text, ground)
    assert contrast(actual["on-link"], actual["link"]) >= 4.5
    for line in ("edge", *(f"line-{i}" for i in range(6))):
        assert contrast(actual[line], actual["panel"]) >= 3, line


# Linear RGB as it is seen without the first, second or third kind of cones (Machado, Oliveira and Fernandes 2009)
DICHROMACIES = {
    "none": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
XYZ = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]


def lab(colour: str, seen: list[list[float]]) -> np.ndarray:
    """L*, a* and b* of a colour of sRGB, white as it is at daylight (D65), for eyes that see it so."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = np.array(XYZ) @ np.clip(np.array(seen) @ linear, 0, 1) / np.array(XYZ).sum(axis=1)
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("eyes", list(DICHROMACIES))
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_line_colours_are_distinguishable_with_colour_blindness(scheme: str, eyes: str) -> None:
    actual = colours(scheme)
    lines = [lab(actual[f"line-{i}"], DICHROMACIES[eyes]) for i in range(6)]
    for (i, item), (k, other) in itertools.combinations(enumerate(lines), 2):
        assert np.linalg.norm(item - other) > 25, (i, k)  # CIE76; 2.3 is just noticeable


def test_commands_on_the_empty_page_are_correct() -> None:
    module = (DASHBOARD / "overview.js").read_text()
    actual = dict(re.findall(r"const (curl|create) = `(.*?)`", module, re.DOTALL))
    texts = {name: text.replace("${base}", "").replace("\\\\\n", " ") for name, text in actual.items()}
    curl, create = (shlex.split(texts[name]) for name in ("curl", "create"))

    assert curl[:3] == ["curl", "-X", "PUT"]
    assert curl[3] == "v1/learners/fraud"  # behind the page's own address
    over_http = Config.of(json.loads(curl[curl.index("-d") + 1]))

    assert create[:3] == ["rarestream", "create", "fraud"]
    assert create.pop() == "--url"  # the page's own address follows
    reply = CliRunner().invoke(command_line, [*create[1:], "--help"])  # an unknown option is an error before --help
    assert reply.exit_code == 0, reply.output
    options = dict(zip(create[3::2], create[4::2], strict=True))
    assert options.keys() - {"--features"} == set()
    assert Config.of({"features": {"kind": options["--features"]}}) == over_http

"""The dashboard's files over plain HTTP: types, caching, the security policy, and that the page asks no other host."""

from __future__ import annotations

import html
import importlib.metadata
import json
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient
from typer.testing import CliRunner

from learners.config import Config
from learners.metrics import HISTORY_COLUMNS
from learners.ordinal_metrics import ORDINAL_HISTORY
from service import pages
from service.cli import app as command_line

DASHBOARD = Path(pages.__file__).parent / "dashboard"
FILES = ["index.html", "dashboard.js", "dashboard.css"]
PLOTLY = importlib.metadata.version("plotly")


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    app = FastAPI()
    app.include_router(pages.router)
    async with AsyncClient(transport=ASGITransport(app), base_url="http://test") as client:
        yield client


@pytest.mark.parametrize(
    ("path", "media_type", "file"),
    [
        ("/", "text/html; charset=utf-8", "index.html"),
        ("/static/dashboard.js", "text/javascript; charset=utf-8", "dashboard.js"),
        ("/static/dashboard.css", "text/css; charset=utf-8", "dashboard.css"),
    ],
)
async def test_file_is_served_and_revalidated(client: AsyncClient, path: str, media_type: str, file: str) -> None:
    reply = await client.get(path)
    assert reply.status_code == 200
    assert reply.headers["content-type"] == media_type
    assert reply.headers["cache-control"] == "no-cache"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.text == (DASHBOARD / file).read_text().replace("{{plotly}}", PLOTLY)

    etag = reply.headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        again = await client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == etag
        assert again.headers.get("content-security-policy") == reply.headers.get("content-security-policy")
    assert (await client.get(path, headers={"If-None-Match": '"other"'})).status_code == 200

    head = await client.head(path)
    assert head.status_code == 200
    assert head.headers["etag"] == etag


async def test_page_allows_no_foreign_and_no_inline_script(client: AsyncClient) -> None:
    policy = dict(
        directive.split(" ", 1) for directive in (await client.get("/")).headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy  # so that default-src rules scripts: neither inline nor eval
    assert "connect-src" not in policy
    assert policy["style-src"] == "'self' 'unsafe-inline'"
    assert policy["img-src"] == "'self' data: blob:"
    assert policy["object-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"


async def test_plotly_bundle_is_served_and_kept_by_its_version(client: AsyncClient) -> None:
    page = (await client.get("/")).text
    path = f"static/plotly.min.js?v={PLOTLY}"
    assert f'data-library="{path}"' in page

    bundle = await client.get(f"/{path}")
    assert bundle.status_code == 200
    assert bundle.headers["content-type"] == "text/javascript; charset=utf-8"
    assert bundle.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert bundle.headers["x-content-type-options"] == "nosniff"
    assert "plotly.js v" in bundle.text[:200]

    # An address that names another version, or none, must not pin this bundle in a browser for a year.
    for other in ("/static/plotly.min.js", "/static/plotly.min.js?v=0.0.1"):
        assert (await client.get(other)).headers["cache-control"] == "no-cache"


async def test_nothing_else_of_the_directory_is_served(client: AsyncClient) -> None:
    for path in ("/static/index.html", "/static/", "/static/../pages.py", "/static/%2e%2e/pages.py"):
        assert (await client.get(path)).status_code == 404, path


async def test_the_pages_are_not_part_of_the_described_api(client: AsyncClient) -> None:
    assert (await client.get("/openapi.json")).json()["paths"] == {}


def test_plotly_package_is_not_imported() -> None:
    seen = subprocess.run(
        [sys.executable, "-c", "import sys, service.pages; print('plotly' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        cwd=DASHBOARD.parent.parent,
    )
    assert seen.stdout.strip() == "False"


def test_missing_bundle_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(RuntimeError, match=r"plotly\.min\.js is missing; expected plotly>=6"):
        pages._plotly_bundle()


@pytest.mark.parametrize("file", FILES)
def test_file_names_no_other_host(file: str) -> None:
    assert re.findall(r"(?:https?:)?//[\w-]+\.[\w.-]+|@import|\burl\(", (DASHBOARD / file).read_text()) == []


def test_page_has_no_inline_script_or_style() -> None:
    page = (DASHBOARD / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(r"<style|\sstyle=|\son\w+=|javascript:", page) == []


def test_module_writes_names_as_text_only() -> None:
    """Names of learners come from users: nothing in the module may parse a string as markup or as code."""
    module = (DASHBOARD / "dashboard.js").read_text()
    parsing = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|setHTML|createContextualFragment"
    parsing += r"|\beval\b|\bFunction\("
    assert re.findall(parsing, module) == []
    assert "textContent" in module


def test_module_finds_every_element_it_names() -> None:
    module, page = (DASHBOARD / "dashboard.js").read_text(), (DASHBOARD / "index.html").read_text()
    ids = set(re.findall(r'byId\("([\w-]+)"\)', module))
    assert "learners" in ids
    assert ids <= set(re.findall(r'\bid="([\w-]+)"', page))
    texts = set(re.findall(r'\b(?:put|figure|at)\("([\w-]+)"', module))
    assert {"auc", "mae", "fit"} <= texts
    assert texts <= set(re.findall(r'data-text="([\w-]+)"', page))
    parts = set(re.findall(r'data-of="(\w+)"', page))
    assert parts == set(re.findall(r'\bof: "(\w+)"', module)) == {"classes", "ranks"}


def test_every_figure_can_be_chosen_and_is_in_the_history() -> None:
    module, page = (DASHBOARD / "dashboard.js").read_text(), (DASHBOARD / "index.html").read_text()
    figures = dict(re.findall(r'^  (\w+): \{ of: "(\w+)", title:', module, re.MULTILINE))
    assert list(figures) == re.findall(r'<input type="radio" name="figure" value="(\w+)"', page)
    points = {"classes": HISTORY_COLUMNS, "ranks": ORDINAL_HISTORY}
    assert all(name in points[of] for name, of in figures.items())


def test_commands_of_the_empty_page_are_right() -> None:
    page = (DASHBOARD / "index.html").read_text()
    shown = [html.unescape(re.sub(r"<[^>]+>", "", one)) for one in re.findall(r"<pre>(.*?)</pre>", page, re.DOTALL)]
    curl, create = (shlex.split(one.replace("\\\n", " ")) for one in shown)

    assert curl[:3] == ["curl", "-X", "PUT"]
    assert curl[3] == "v1/learners/fraud"  # behind the page's own address
    over_http = Config.of(json.loads(curl[curl.index("-d") + 1]))

    assert create[:3] == ["rarestream", "create", "fraud"]
    assert create.pop() == "--url"  # the page's own address follows
    reply = CliRunner().invoke(command_line, [*create[1:], "--help"])  # an unknown option is an error before --help
    assert reply.exit_code == 0, reply.output
    options = dict(zip(create[3::2], create[4::2], strict=True))
    features = {"kind": options["--features"], "dim": int(options["--dim"])}
    assert Config.of({"algorithm": options["--algorithm"], "features": features}) == over_http

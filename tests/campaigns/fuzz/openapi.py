"""schemathesis over the OpenAPI document, against the real server: no 5xx, and replies are what the document says.

What is left out: streams of events, which do not end. The hot requests' bodies are drawn by the document's schema;
what features a learner takes depends on its configuration, which a schema of the path cannot say, so most are refused
there with a 422, which is checked as any reply is, and `bodies.py` has those that nearly fit. For the same reason a
refusal of what the document allows is no fault. Two shares of the cases: such as it allows, and such as it does not.
"""

from __future__ import annotations

import time
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks, not_a_server_error
from schemathesis.core.failures import FailureGroup

from tests.campaigns.fuzz.report import Report
from tests.campaigns.fuzz.serving import LEARNERS, Served, served

__all__ = ["openapi"]

_ENDLESS = (
    "/v1/learners/{name}/metrics/stream",
    "/v1/learners/{name}/alerts/stream",
    "/v1/stream",
    "/v1/groups/{name}/compare/stream",
)
_CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
_GROUP = {"learners": ["dense", "named"]}


def openapi(seconds: float, seed: int = 0, count: int | None = None) -> Report:
    """`count`: cases of each operation and mode."""
    report = Report("OpenAPI")
    load_all_checks()
    checks = [not_a_server_error, *(CHECKS.get_one(name) for name in _CHECKS)]
    with served(max_learners=1000, body_seconds=5) as service:
        _prepared(service)
        document = service.http.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        operations: list[Any] = [item.ok() for item in schema.get_all_operations()]  # type: ignore[union-attr]  # or it raises
        operations = [item for item in operations if item.path not in _ENDLESS]
        modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        end = time.monotonic() + seconds
        with requests.Session() as session:
            session.trust_env = False
            rounds = 0
            while rounds == 0 or (count is None and time.monotonic() < end):
                for operation in operations:
                    for mode in modes:
                        most = count or 25
                        _cases(report, service, session, operation, mode, checks, most, seed + rounds, end)
                rounds += 1
        report.figures["operations of the document"] = str(len(operations))
    return report


def _prepared(service: Served) -> None:
    """Create some events, a group and a snapshot."""
    events = [{"id": f"e{i}", "x": [i % 2, 0.5, 1.0], "label": i % 2} for i in range(40)]
    service.http.post("/v1/learners/dense/update", json={"events": events}).raise_for_status()
    service.http.post("/v1/learners/dense/snapshots").raise_for_status()
    service.http.put("/v1/groups/both", json=_GROUP).raise_for_status()


def _cases(
    report: Report,
    service: Served,
    session: requests.Session,
    operation: Any,
    mode: GenerationMode,
    checks: list[Any],
    count: int,
    seed: int,
    end: float,
) -> None:
    """Cases of one operation."""
    what = f"{operation.method.upper()} {operation.path}"
    try:
        cases = operation.as_strategy(generation_mode=mode)
    except Exception as error:  # nothing of this operation can be made wrong
        report.figures[f"{what}, {mode.value}"] = f"none: {error}"[:100]
        return
    made = operation.method.lower() == "put" or operation.path.endswith("/import")  # then a name that is none of ours
    ours: list[str | None] = ["both"] if "/groups" in operation.path else [*LEARNERS, None]
    names = st.sampled_from([None] if made else ours)

    @seeded(seed)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    @given(cases, names)
    def run(case: Any, name: str | None) -> None:
        if time.monotonic() > end:
            return
        if name is not None and "name" in (case.path_parameters or {}):
            case.path_parameters["name"] = name
        response = case.call(base_url=service.url, session=session, timeout=300)
        report.note(what, response.status_code)
        try:
            case.validate_response(response, checks=checks)
        except FailureGroup as group:
            for exception in group.exceptions:
                report.fail(f"{what} ({mode.value}): {' '.join(str(exception).split())}")
        except AssertionError as error:
            report.fail(f"{what} ({mode.value}): {' '.join(str(error).split())}")
        if operation.method.lower() == "delete" and response.status_code < 300:
            service.create()
            service.http.put("/v1/groups/both", json=_GROUP)
        elif response.status_code == 201 and made:
            service.http.delete(str(response.request.url).removesuffix("/import"))

    try:
        run()
    except Unsatisfiable:
        report.figures[f"{what}, {mode.value}"] = "none: nothing to be made wrong"
    for fault in service.faults():
        report.fail(f"{what} ({mode.value}): {fault}")

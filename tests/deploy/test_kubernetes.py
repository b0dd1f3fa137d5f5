"""The stand-in for a cluster says no where the real one does: what it grants would prove nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from rarestream import __version__
from tests.deploy.kubernetes import Cluster
from tests.deploy.kubernetes.objects import Refused, applied, merged, selected

IMAGE = f"rarestream:{__version__}"
ONLY = {"app": "only"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster") / "of") as cluster:
        yield cluster


def asked(cluster: Cluster, method: str, path: str, body: Any = None, form: str = "application/json") -> Any:
    """Status and reply."""
    sent = None if body is None else json.dumps(body)
    headers = {"content-type": form}
    reply = httpx.request(method, f"{cluster.url}{path}", content=sent, headers=headers, trust_env=False, timeout=60)
    return reply.status_code, reply.json()


def named(kind: str, name: str, api: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}


def pod(*command: str, image: str = IMAGE, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"name": "only", "image": image, "command": list(command)}], **spec}


def deployment(name: str, spec: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    template = {"metadata": {"labels": ONLY}, "spec": spec}
    wanted = {"replicas": replicas, "selector": {"matchLabels": ONLY}, "template": template}
    return named("Deployment", name, "apps/v1", spec=wanted)


def until(cluster: Cluster, path: str, holds: Callable[[Any], bool]) -> Any:
    """What is found there, once that holds."""
    deadline = time.monotonic() + 120
    while not holds(found := cluster.found(path)):
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return found


SECRETS, DEPLOYMENTS = "/api/v1/namespaces/default/secrets", "/apis/apps/v1/namespaces/default/deployments"
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("path", "body", "status", "told"),
    [
        ("/api/v1/namespaces/nowhere/secrets", named("Secret", "a"), 404, 'namespaces "nowhere" not found'),
        ("/api/v1/namespaces/default/wishes", named("Wish", "a"), 404, "could not find the requested resource"),
        ("/apis/monitoring.coreos.com/v1/namespaces/default/servicemonitors", named("x", "a"), 404, "could not find"),
        (SECRETS, named("ConfigMap", "a"), 400, "is no Secret"),
        (SECRETS, named("Secret", "A_b"), 422, "metadata.name"),
        (SECRETS, named("Secret", "a", dato={}), 422, "'dato' was unexpected"),
        (SECRETS, named("Secret", "a", data={"a": "A" * 1_500_000}), 422, "Too long"),
        (DEPLOYMENTS, named("Deployment", "a", "apps/v1", spec={}), 422, "is a required property"),
        (PODS, named("Pod", "a", spec=pod("true", serviceAccountName="none")), 403, "service account default/none"),
    ],
)
def test_what_the_server_refuses(cluster: Cluster, path: str, body: Any, status: int, told: str) -> None:
    code, reply = asked(cluster, "POST", path, body)
    assert (code, reply["kind"], reply["code"]) == (status, "Status", status)
    assert told in reply["message"]


def test_names_are_taken_once_and_versions_are_asked_for(cluster: Cluster) -> None:
    code, made = asked(cluster, "POST", SECRETS, named("Secret", "taken", stringData={"a": "b"}))
    assert (code, made["data"]) == (201, {"a": "Yg=="})
    assert "stringData" not in made
    code, reply = asked(cluster, "POST", SECRETS, named("Secret", "taken"))
    assert (code, reply["reason"]) == (409, "AlreadyExists")
    assert asked(cluster, "PUT", f"{SECRETS}/taken", made | {"data": {"a": "Yw=="}})[0] == 200
    code, reply = asked(cluster, "PUT", f"{SECRETS}/taken", made)
    assert (code, reply["reason"]) == (409, "Conflict")
    assert asked(cluster, "DELETE", f"{SECRETS}/taken")[0] == 200
    assert asked(cluster, "DELETE", f"{SECRETS}/taken")[0] == 404


def test_a_selector_stays(cluster: Cluster) -> None:
    path = f"{DEPLOYMENTS}/stays"
    assert asked(cluster, "POST", DEPLOYMENTS, deployment("stays", pod("true"), replicas=0))[0] == 201
    other = {"selector": {"matchLabels": {"app": "other"}}, "template": {"metadata": {"labels": {"app": "other"}}}}
    code, reply = asked(cluster, "PATCH", path, {"spec": other}, "application/merge-patch+json")
    assert code == 422
    assert "selector" in reply["message"]
    code, reply = asked(cluster, "PATCH", path, {"spec": {"template": {"spec": {"x": []}}}}, "application/json-patch")
    assert code == 415


def test_pods_that_cannot_run(cluster: Cluster) -> None:
    """For want of an image, of a Secret, of an account, or since they end; none is ready."""
    secret = {"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a"}}}
    lacking = pod("sleep", "60")
    lacking["containers"][0]["env"] = [secret]
    cases = {
        "image": (pod("true", image="registry.example/nothing:1"), "ErrImagePull"),
        "secret": (lacking, "CreateContainerConfigError"),
        "program": (pod("nonsense"), "RunContainerError"),
        "ends": (pod("false"), "CrashLoopBackOff"),
    }
    for name, (spec, reason) in cases.items():
        assert asked(cluster, "POST", PODS, named("Pod", name, spec=spec))[0] == 201

        def waits(found: Any, reason: str = reason) -> bool:
            (status,) = found.get("status", {}).get("containerStatuses", [{"state": {}}])
            return status["state"].get("waiting", {}).get("reason") == reason and not status["ready"]

        until(cluster, f"{PODS}/{name}", waits)
    until(cluster, f"{PODS}/ends", lambda one: one["status"]["containerStatuses"][0]["restartCount"] > 0)
    for command, phase in (("true", "Succeeded"), ("false", "Failed")):
        body = named("Pod", f"once-{command}", spec=pod(command, restartPolicy="Never"))
        assert asked(cluster, "POST", PODS, body)[0] == 201
        path = f"{PODS}/once-{command}"
        found = until(cluster, path, lambda one: one.get("status", {}).get("phase") in ("Succeeded", "Failed"))
        assert found["status"]["phase"] == phase

    assert asked(cluster, "POST", DEPLOYMENTS, deployment("no", pod("true", serviceAccountName="none")))[0] == 201
    found = until(cluster, f"{DEPLOYMENTS}/no", lambda one: len(one.get("status", {}).get("conditions", [])) == 3)
    assert "service account default/none" in found["status"]["conditions"][2]["reason"]
    assert found["status"]["replicas"] == 0


def test_pods_end_with_their_deployment_and_a_namespace_with_what_is_in_it(cluster: Cluster) -> None:
    assert asked(cluster, "POST", "/api/v1/namespaces", named("Namespace", "brief"))[0] == 201
    inside = "/apis/apps/v1/namespaces/brief/deployments"
    pods = "/api/v1/namespaces/brief/pods"
    assert asked(cluster, "POST", inside, deployment("a", pod("sleep", "600"), replicas=2))[0] == 201
    until(cluster, f"{inside}/a", lambda one: one.get("status", {}).get("readyReplicas") == 2)
    assert asked(cluster, "DELETE", f"{inside}/a")[0] == 200
    until(cluster, pods, lambda found: not found["items"])
    assert asked(cluster, "POST", inside, deployment("b", pod("sleep", "600")))[0] == 201
    assert asked(cluster, "DELETE", "/api/v1/namespaces/brief")[0] == 200
    until(
        cluster, "/api/v1/namespaces", lambda found: "brief" not in {one["metadata"]["name"] for one in found["items"]}
    )
    assert cluster.found(pods)["items"] == []


def test_selectors_and_patches() -> None:
    labels = {"a": "1", "b": "2"}
    for selector in ("", "a=1", "a==1,b!=1", "a in (1, 3),b", "!c", "c!=1", "b notin (1)"):
        assert selected(labels, selector), selector
    for selector in ("a=2", "a=1,b=1", "a in (2)", "c", "!a", "a notin (1)"):
        assert not selected(labels, selector), selector
    with pytest.raises(Refused):
        selected(labels, "a > 1")
    assert merged({"a": {"b": 1, "c": 2}, "d": [1]}, {"a": {"b": None}, "d": [2]}) == {"a": {"c": 2}, "d": [2]}
    before, live = {"a": {"b": 1, "c": 1}}, {"a": {"b": 1, "c": 1, "other": 3}, "status": 1}
    assert applied(before, {"a": {"c": 2}}, live) == {"a": {"c": 2, "other": 3}, "status": 1}

"""What a cluster does by itself: Deployments and StatefulSets have their pods, and what belongs to nothing goes."""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from tests.deploy.kubernetes.objects import Object, Objects, Refused, now

__all__ = ["control", "is_ready"]

HASH, REVISION = "pod-template-hash", "controller-revision-hash"


def control(objects: Objects) -> None:
    """One step towards what is wanted, of everything."""
    for one in objects.all("Deployment"):
        _deployment(objects, one)
    for one in objects.all("StatefulSet"):
        _stateful_set(objects, one)
    for one in objects.all("PersistentVolumeClaim"):
        objects.status("PersistentVolumeClaim", one, {"phase": "Bound"})
    for one in objects.all("Namespace"):
        if "deletionTimestamp" in one["metadata"]:
            _ended(objects, one)
    there = {one["metadata"]["uid"] for kind in ("Deployment", "StatefulSet") for one in objects.all(kind)}
    for pod in objects.all("Pod"):
        owners = {one["uid"] for one in pod["metadata"].get("ownerReferences", [])}
        if owners and not owners & there:
            _delete(objects, pod)


def is_ready(pod: Object) -> bool:
    """Whether a pod is sent requests."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]


def _deployment(objects: Objects, deployment: Object) -> None:
    """Its pods are there; of an update new ones come, and old ones go, as far as its strategy lets them."""
    spec = deployment["spec"]
    wanted = spec.get("replicas", 1)
    rolling = spec.get("strategy", {}).get("rollingUpdate", {})
    surge, unavailable = rolling.get("maxSurge", 1), rolling.get("maxUnavailable", 0)
    revision = _hash(spec["template"])
    pods = _own(objects, deployment)
    new = [one for one in pods if one["metadata"]["labels"][HASH] == revision]
    old = sorted((one for one in pods if one not in new), key=is_ready)
    problem = ""
    for number in range(min(wanted - len(new), wanted + surge - len(pods))):
        name = f"{deployment['metadata']['name']}-{revision}-{_hash([len(objects.events), number])[:5]}"
        problem = problem or _made(objects, deployment, name, {HASH: revision})
    for one in sorted(new, key=is_ready)[: max(0, len(new) - wanted)]:
        _delete(objects, one)
    spare = sum(map(is_ready, pods)) - (wanted - unavailable)
    for one in old:
        if not is_ready(one) or spare > 0:
            _delete(objects, one)
            spare -= is_ready(one)
    pods = _own(objects, deployment)
    ready, updated = sum(map(is_ready, pods)), sum(one["metadata"]["labels"][HASH] == revision for one in pods)
    done = updated == ready == len(pods) == wanted
    _say(
        objects,
        deployment,
        {"replicas": len(pods), "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": ready},
        {
            "Available": (ready >= wanted - unavailable, "MinimumReplicasAvailable"),
            "Progressing": (True, "NewReplicaSetAvailable" if done else "ReplicaSetUpdated"),
            **({"ReplicaFailure": (True, problem)} if problem else {}),
        },
    )


def _stateful_set(objects: Objects, owner: Object) -> None:
    """Its pods are there, one after the other, each with its claims; one of an older template is replaced."""
    spec, name = owner["spec"], owner["metadata"]["name"]
    wanted = spec.get("replicas", 1)
    revision = f"{name}-{_hash(spec['template'])}"
    pods = {one["metadata"]["name"]: one for one in _own(objects, owner, ending=True)}
    names = [f"{name}-{number}" for number in range(wanted)]
    for one in pods.keys() - set(names):
        _delete(objects, pods[one])
    for one in names:
        if one not in pods:
            claims = {each["metadata"]["name"]: each for each in spec.get("volumeClaimTemplates", [])}
            for volume, claim in claims.items():
                _claimed(objects, owner, f"{volume}-{one}", claim)
            mounted = {volume: {"persistentVolumeClaim": {"claimName": f"{volume}-{one}"}} for volume in claims}
            _made(objects, owner, one, {REVISION: revision}, mounted)
        elif pods[one]["metadata"]["labels"][REVISION] != revision:
            _delete(objects, pods[one])
        if one not in pods or not is_ready(pods[one]):
            break
    active = _own(objects, owner)
    ready = sum(map(is_ready, active))
    updated = sum(one["metadata"]["labels"][REVISION] == revision for one in active)
    counts = {
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": updated,
        "updatedReplicas": updated,
    }
    _say(
        objects,
        owner,
        {"replicas": len(active), **counts, "currentRevision": revision, "updateRevision": revision},
        {},
    )


def _ended(objects: Objects, namespace: Object) -> None:
    """All that is in it, and then itself."""
    name = namespace["metadata"]["name"]
    inside = [(kind, one) for kind in objects.kinds for one in objects.all(kind, name) if kind.namespaced]
    for kind, one in inside:
        objects.delete(kind, name, one["metadata"]["name"])
    if not inside:
        objects.delete(objects.kind("Namespace"), "", name, ended=True)


def _own(objects: Objects, owner: Object, *, ending: bool = False) -> list[Object]:
    """Its pods that run or will; with those that end."""
    return [
        one
        for one in objects.all("Pod", owner["metadata"]["namespace"])
        if any(each["uid"] == owner["metadata"]["uid"] for each in one["metadata"].get("ownerReferences", []))
        and (ending or "deletionTimestamp" not in one["metadata"])
    ]


def _made(
    objects: Objects, owner: Object, name: str, labels: dict[str, str], mounted: dict[str, Any] | None = None
) -> str:
    """A pod of its template; why there is none, where it is not admitted."""
    pod = copy.deepcopy(owner["spec"]["template"])
    about = owner["metadata"]
    metadata = pod.setdefault("metadata", {})
    metadata |= {"name": name, "labels": {**metadata.get("labels", {}), **labels}}
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": about["name"], "uid": about["uid"]}
    metadata["ownerReferences"] = [{**reference, "controller": True}]
    volumes = [{"name": one, **what} for one, what in (mounted or {}).items()]
    if volumes:
        pod["spec"]["volumes"] = [*pod["spec"].get("volumes", []), *volumes]
    try:
        objects.create(objects.kind("Pod"), about["namespace"], pod)
    except Refused as error:
        return str(error)
    return ""


def _claimed(objects: Objects, owner: Object, name: str, template: Object) -> None:
    """A volume's claim, which outlives the pod and its owner."""
    namespace = owner["metadata"]["namespace"]
    if objects.find("PersistentVolumeClaim", namespace, name) is None:
        claim = {**template, "metadata": {**template["metadata"], "name": name}}
        objects.create(objects.kind("PersistentVolumeClaim"), namespace, claim)


def _delete(objects: Objects, pod: Object) -> None:
    objects.delete(objects.kind("Pod"), pod["metadata"]["namespace"], pod["metadata"]["name"])


def _say(objects: Objects, owner: Object, counts: Object, conditions: dict[str, tuple[bool, str]]) -> None:
    """Its status; a condition keeps the time at which it came to be so."""
    before = {one["type"]: one for one in owner.get("status", {}).get("conditions", [])}
    status: Object = {"observedGeneration": owner["metadata"]["generation"], **counts}
    listed = []
    for type, (holds, reason) in conditions.items():
        one = {"type": type, "status": str(holds), "reason": reason}
        had = before.get(type, {})
        same = all(had.get(name) == value for name, value in one.items())
        listed.append({**one, "lastTransitionTime": had["lastTransitionTime"] if same else now()})
    if listed:
        status["conditions"] = listed
    objects.status(owner["kind"], owner, status)


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]

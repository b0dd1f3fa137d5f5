"""What a cluster keeps: its objects, by kind, namespace and name, and all that has happened to them, for watches."""

from __future__ import annotations

import asyncio
import base64
import copy
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import kubernetes_validate

__all__ = ["KINDS", "OPERATOR", "Event", "Kind", "Object", "Objects", "Refused", "now", "selected"]

Object = dict[str, Any]
VERSION = "1.35"  # of the schemas that objects are held against


class Kind(NamedTuple):
    """Of an object, as discovery tells it."""

    group: str
    version: str
    resource: str
    name: str
    namespaced: bool = True

    @property
    def api(self) -> str:
        """The `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


OPERATOR = "monitoring.coreos.com"  # the group of the Prometheus operator, which a cluster may have or not
KINDS = [
    Kind("", "v1", "namespaces", "Namespace", namespaced=False),
    Kind("", "v1", "pods", "Pod"),
    Kind("", "v1", "services", "Service"),
    Kind("", "v1", "serviceaccounts", "ServiceAccount"),
    Kind("", "v1", "secrets", "Secret"),
    Kind("", "v1", "configmaps", "ConfigMap"),
    Kind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    Kind("", "v1", "events", "Event"),
    Kind("apps", "v1", "deployments", "Deployment"),
    Kind("apps", "v1", "replicasets", "ReplicaSet"),
    Kind("apps", "v1", "statefulsets", "StatefulSet"),
    Kind("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    Kind("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
    Kind(OPERATOR, "v1", "servicemonitors", "ServiceMonitor"),
    Kind(OPERATOR, "v1", "prometheusrules", "PrometheusRule"),
]
FIXED = {"Deployment": {"selector"}}  # what of a `spec` stays as it was made
CHANGING = {  # what alone does not
    "StatefulSet": {"replicas", "template", "updateStrategy", "minReadySeconds", "revisionHistoryLimit"},
    "Pod": {"activeDeadlineSeconds", "tolerations"},
}
SECRET_BYTES = 2**20


class Refused(Exception):
    """A request that is not granted, with the status and the reason that the real server has for it."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


class Event(NamedTuple):
    """A change, as a watch tells it."""

    type: str
    kind: Kind
    object: Object


def now() -> str:
    """The time as Kubernetes writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def selected(labels: dict[str, str], selector: str) -> bool:
    """Whether labels fulfil a selector as it stands in a query. Raises `Refused` for what it does not know."""
    for term in filter(None, (one.strip() for one in re.split(r",(?![^(]*\))", selector))):
        within = re.fullmatch(r"(\S+) (in|notin) \(([^)]*)\)", term)
        equal = re.fullmatch(r"([^=!]+)(==?|!=)([^=!]*)", term)
        if within:
            has = labels.get(within[1]) in {one.strip() for one in within[3].split(",")}
            fits = has == (within[2] == "in")
        elif equal:
            fits = (labels.get(equal[1]) == equal[3]) == (equal[2] != "!=")
        elif re.fullmatch(r"!?[\w./-]+", term):
            fits = (term.removeprefix("!") in labels) != term.startswith("!")
        else:
            raise Refused(400, "BadRequest", f"unable to parse requirement: {term}")
        if not fits:
            return False
    return True


def merged(old: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    new = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = merged(new.get(name), value)
    return new


def applied(before: Any, after: Any, live: Any) -> Any:
    """`live` with what one manager now wants of it, less what it wanted before and no longer does. Lists as a whole."""
    if not (isinstance(after, dict) and isinstance(live, dict)):
        return copy.deepcopy(after)
    before = before if isinstance(before, dict) else {}
    new = {name: value for name, value in live.items() if name not in before or name in after}
    for name, value in after.items():
        new[name] = applied(before.get(name), value, live.get(name))
    return new


class Objects:
    """All objects. The version of an object is the number of the event that made it what it is."""

    def __init__(self, kinds: list[Kind]) -> None:
        self.kinds = kinds
        self.events: list[Event] = []
        self._kept: dict[tuple[Kind, str, str], Object] = {}
        self._wanted: dict[tuple[str, str], Object] = {}  # by uid and manager: what it has applied last
        self._change = asyncio.Event()
        for name in ("default", "kube-system"):
            self.create(self.kind("Namespace"), "", {"metadata": {"name": name}})

    def kind(self, name: str) -> Kind:
        """By its name. Raises KeyError."""
        for one in self.kinds:
            if one.name == name:
                return one
        raise KeyError(name)

    async def change(self) -> None:
        """Returns once something has changed."""
        await self._change.wait()

    def wake(self) -> None:
        """Let `change` return."""
        self._change.set()
        self._change = asyncio.Event()

    # Reading

    def find(self, kind: Kind | str, namespace: str, name: str) -> Object | None:
        """One that is there, or None. What is returned is not to be changed."""
        return self._kept.get((self.kind(kind) if isinstance(kind, str) else kind, namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """One that is there. Raises `Refused`."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise Refused(404, "NotFound", f'{self._called(kind)} "{name}" not found')
        return found

    def all(self, kind: Kind | str, namespace: str = "") -> list[Object]:
        """Of a namespace, or of all."""
        wanted = self.kind(kind) if isinstance(kind, str) else kind
        return [one for (of, within, _), one in list(self._kept.items()) if of == wanted and namespace in ("", within)]

    @staticmethod
    def _called(kind: Kind) -> str:
        return f"{kind.resource}.{kind.group}" if kind.group else kind.resource

    # Writing

    def create(self, kind: Kind, namespace: str, given: Object) -> Object:
        """Raises `Refused`: the name is taken, the namespace is not there, or it is no object of this kind."""
        name = given.get("metadata", {}).get("name", "")
        if len(name) > 253 or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name):
            raise Refused(422, "Invalid", f"{kind.name} {name!r} is invalid: metadata.name: Invalid value")
        if kind.namespaced:
            within = self.get(self.kind("Namespace"), "", namespace)
            if "deletionTimestamp" in within["metadata"]:
                raise Refused(403, "Forbidden", f"unable to create new content in {namespace}: it is being terminated")
        if (kind, namespace, name) in self._kept:
            raise Refused(409, "AlreadyExists", f'{self._called(kind)} "{name}" already exists')
        made = copy.deepcopy(given)
        made.pop("status", None)
        made["metadata"] |= {"uid": str(uuid.uuid4()), "creationTimestamp": now(), "generation": 1}
        if kind.namespaced:
            made["metadata"]["namespace"] = namespace
        kept = self._keep("ADDED", kind, self._admitted(kind, namespace, made, None))
        if kind.name == "Namespace":  # the account that pods have who name none
            self.create(self.kind("ServiceAccount"), name, {"metadata": {"name": "default"}})
        return kept

    def replace(self, kind: Kind, namespace: str, name: str, given: Object) -> Object:
        """All of it but its status. Raises `Refused`, also where it has changed since the version that is given."""
        old = self.get(kind, namespace, name)
        had = old["metadata"]
        version = given.get("metadata", {}).get("resourceVersion")
        if version not in (None, "", had["resourceVersion"]):
            raise Refused(409, "Conflict", f'{self._called(kind)} "{name}": the object has been modified')
        new = copy.deepcopy(given)
        own = ("uid", "creationTimestamp", "namespace", "name", "generation", "resourceVersion", "deletionTimestamp")
        new["metadata"] = new.get("metadata", {}) | {one: had[one] for one in own if one in had}
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
        new = self._admitted(kind, namespace, new, old)
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = had["generation"] + 1
        return self._keep("MODIFIED", kind, new)

    def patch(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        """A merge patch."""
        return self.replace(kind, namespace, name, merged(self.get(kind, namespace, name), patch))

    def apply(self, kind: Kind, namespace: str, name: str, wanted: Object, manager: str) -> tuple[Object, bool]:
        """What a manager wants of an object, which is made where it is not there; whether it was made."""
        if wanted.get("metadata", {}).get("name") != name:
            raise Refused(400, "BadRequest", f"the name of the object is not {name}")
        old = self.find(kind, namespace, name)
        if old is None:
            new = self.create(kind, namespace, wanted)
        else:
            before = self._wanted.get((old["metadata"]["uid"], manager), {})
            new = self.replace(kind, namespace, name, applied(before, self._encoded(kind, wanted), old))
        self._wanted[new["metadata"]["uid"], manager] = self._encoded(kind, wanted)
        return new, old is None

    def status(self, kind: str, of: Object, status: Object) -> None:
        """A controller's word on an object, where that is still there."""
        at = (self.kind(kind), of["metadata"]["namespace"], of["metadata"]["name"])
        old = self._kept.get(at)
        if old is not None and old["metadata"]["uid"] == of["metadata"]["uid"] and old.get("status") != status:
            self._keep("MODIFIED", at[0], {**copy.deepcopy(old), "status": status})

    def delete(self, kind: Kind, namespace: str, name: str, *, ended: bool = False) -> Object:
        """A pod and a namespace are only marked, until processes, or what is in it, have `ended`. Raises `Refused`."""
        old = self.get(kind, namespace, name)
        new = copy.deepcopy(old)
        if kind.name in ("Pod", "Namespace") and not ended:
            if "deletionTimestamp" in new["metadata"]:
                return old
            new["metadata"]["deletionTimestamp"] = now()
            return self._keep("MODIFIED", kind, new)
        del self._kept[kind, namespace, name]
        return self._happened("DELETED", kind, new)

    def _keep(self, type: str, kind: Kind, new: Object) -> Object:
        new |= {"apiVersion": kind.api, "kind": kind.name}
        self._kept[kind, new["metadata"].get("namespace", ""), new["metadata"]["name"]] = new
        return self._happened(type, kind, new)

    def _happened(self, type: str, kind: Kind, new: Object) -> Object:
        new["metadata"]["resourceVersion"] = str(len(self.events) + 1)
        self.events.append(Event(type, kind, new))
        self.wake()
        return new

    # What is admitted

    @staticmethod
    def _encoded(kind: Kind, given: Object) -> Object:
        """With what a Secret has as text among its data."""
        if kind.name != "Secret" or "stringData" not in given:
            return given
        new = copy.deepcopy(given)
        texts = {name: base64.b64encode(text.encode()).decode() for name, text in new.pop("stringData").items()}
        new["data"] = {**new.get("data", {}), **texts}
        return new

    def _admitted(self, kind: Kind, namespace: str, new: Object, old: Object | None) -> Object:
        """As it is kept. Raises `Refused` for a field that Kubernetes does not know, or that may not change."""
        new = self._encoded(kind, new) | {"apiVersion": kind.api, "kind": kind.name}
        name = new["metadata"]["name"]
        for problem in self._problems(kind, new, old):
            raise Refused(422, "Invalid", f'{kind.name} "{name}" is invalid: {problem}')
        if kind.name == "Pod" and old is None:
            account = new["spec"].get("serviceAccountName", "default")
            if self.find("ServiceAccount", namespace, account) is None:
                reason = f"error looking up service account {namespace}/{account}"
                raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: {reason}')
        return new

    @staticmethod
    def _problems(kind: Kind, new: Object, old: Object | None) -> Iterator[str]:
        if kind.group != OPERATOR:  # of whose objects Kubernetes has no schemas
            try:
                kubernetes_validate.validate(new, VERSION, strict=True)
            except kubernetes_validate.ValidationError as error:
                yield str(error).partition("\n")[0]
        spec = new.get("spec", {})
        if kind.name in ("Deployment", "StatefulSet"):
            labels = spec["template"]["metadata"].get("labels", {})
            if not spec["selector"]["matchLabels"].items() <= labels.items():
                yield "`selector` does not match template `labels`"
        if kind.name == "Pod" and len(spec["containers"]) != 1:
            yield "spec.containers: this cluster runs pods of one container"
        if kind.name == "Secret" and sum(map(len, new.get("data", {}).values())) > SECRET_BYTES * 4 / 3:
            yield f"data: Too long: may not be more than {SECRET_BYTES} bytes"
        if old is not None:
            had = old.get("spec", {})
            changed = {one for one in spec.keys() | had.keys() if spec.get(one) != had.get(one)}
            if refused := changed & FIXED.get(kind.name, set()) or changed - CHANGING.get(kind.name, changed):
                yield f"spec: Forbidden: updates to {sorted(refused)} are not allowed"

"""The Helm chart as Helm renders it, against Kubernetes' own schemas, the image and the code.

Where no Helm is on PATH the tests that render are skipped: `python -m tests.deploy.helm FOLDER` gets one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from service.api.app import create_app
from service.settings import Settings
from tests.deploy.helm import (
    CASES,
    CHART,
    FULL,
    KEYED,
    LEAST,
    PASSWORD,
    SPREAD,
    environment,
    helm,
    node,
    rendered,
    with_helm,
)
from tests.deploy.image import instructions

pytestmark = pytest.mark.integration

OPERATOR = {"ServiceMonitor", "PrometheusRule"}  # of the Prometheus operator; Kubernetes has no schemas of them


@with_helm
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
@pytest.mark.parametrize("version", ["1.27.0", "1.32.0", "1.37.0"])
def test_objects_match_the_kubernetes_schemas(options: tuple[str, ...], version: str) -> None:
    """Strictly: a field that Kubernetes does not know is an error."""
    for (kind, name), document in rendered(*options).items():
        if kind not in OPERATOR:
            kubernetes_validate.validate(document, version, strict=True)
        assert name.startswith("rs-rarestream")


@with_helm
def test_the_kubernetes_schemas_refuse_invalid_objects() -> None:
    deployment = rendered(*LEAST)["Deployment", "rs-rarestream"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for field, value in (("securityContexts", {}), ("ports", [{"containerPort": "http"}])):
        before = dict(container)
        container[field] = value
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(deployment, "1.37.0", strict=True)
        container.clear()
        container.update(before)
    kubernetes_validate.validate(deployment, "1.37.0", strict=True)


@with_helm
def test_default_and_optional_objects() -> None:
    least = {kind for kind, _ in rendered(*LEAST)}
    always = {"Deployment", "Service", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy", "Pod"}
    assert least == always | {"Secret"}
    assert {kind for kind, _ in rendered(*KEYED)} == always  # both secrets are the operator's own
    optional = {"HorizontalPodAutoscaler", "ServiceMonitor", "PrometheusRule", "ConfigMap", "StatefulSet"}
    assert {kind for kind, _ in rendered(*FULL)} == least | optional


@with_helm
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_every_setting_exists_and_its_value_is_valid(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    variables = environment(node(*options)[2])
    ours = {
        name: value for name, value in variables.items() if name.startswith("RARESTREAM_") and isinstance(value, str)
    }
    for name, value in ours.items():
        monkeypatch.setenv(name, value.replace("$(POD_IP)", "fd00::7"))
    settings = Settings()
    for name, value in ours.items():
        field = name.removeprefix("RARESTREAM_").lower()
        assert str(getattr(settings, field)).lower() == value.replace("$(POD_IP)", "fd00::7")


@with_helm
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_probe_paths_and_ports(options: tuple[str, ...]) -> None:
    """A started node stays in the Service while Redis is away: it can still predict. `ready` is about updates."""
    _, _, container = node(*options)
    probes = {name: container[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")}
    paths = {name: probe["path"] for name, probe in probes.items()}
    assert paths == {
        "startupProbe": "/v1/health/ready",
        "readinessProbe": "/v1/health/live",
        "livenessProbe": "/v1/health/live",
    }
    assert set(paths.values()) <= set(create_app(Settings(store="memory:")).openapi()["paths"])
    scheme = "HTTPS" if options is FULL else "HTTP"
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {("http", scheme)}
    assert container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"] == 600

    port = Settings.model_fields["port"].default
    assert dict(instructions())["EXPOSE"] == str(port)
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert environment(container)["RARESTREAM_PORT"] == str(port)
    objects = rendered(*options)
    (served,) = objects["Service", "rs-rarestream"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port, "http")
    (test,) = objects["Pod", "rs-rarestream-test"]["spec"]["containers"]
    assert test["command"] == ["healthcheck", f"{scheme.lower()}://rs-rarestream:{port}/v1/health/ready"]


@with_helm
@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_containers_run_without_privileges(options: tuple[str, ...]) -> None:
    user = int(dict(instructions())["USER"].split(":")[0])
    count = 0
    for (kind, name), document in rendered(*options).items():
        if kind not in ("Deployment", "StatefulSet", "Pod"):
            continue
        pod = document["spec"] if kind == "Pod" else document["spec"]["template"]["spec"]
        count += 1
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == (999 if name.endswith("-redis") else user)
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        # A Service named rarestream would otherwise put RARESTREAM_PORT=tcp://... into the pods.
        assert pod["enableServiceLinks"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
    assert count == (3 if options is FULL else 2)
    assert all(
        item["automountServiceAccountToken"] is False
        for (kind, _), item in rendered(*options).items()
        if "Account" in kind
    )


@with_helm
@pytest.mark.parametrize("null", ["securityContext", "securityContext.runAsUser"])
def test_the_cluster_may_choose_the_users(null: str) -> None:
    """OpenShift refuses pods with a user, a group or a group of files that is not of the namespace."""
    ours = {"runAsUser": None, "runAsGroup": None, "fsGroup": None, "supplementalGroups": [7]}
    values = json.dumps(None if null == "securityContext" else ours)
    options = ("--set-json", f"securityContext={values}", "--set-json", f"redis.securityContext={values}")
    for (kind, _), document in rendered(*FULL, *options).items():
        if kind in ("Deployment", "StatefulSet", "Pod"):
            pod = document["spec"] if kind == "Pod" else document["spec"]["template"]["spec"]
            context = pod.get("securityContext", {})
            assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()
            if null != "securityContext":
                assert (context["runAsNonRoot"], context["supplementalGroups"]) == (True, [7])


@with_helm
def test_a_rolling_update_removes_no_node_prematurely() -> None:
    deployment, pod, container = node(*LEAST)
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert deployment["spec"]["replicas"] == 2
    started = container["startupProbe"]
    assert deployment["spec"]["progressDeadlineSeconds"] > started["periodSeconds"] * started["failureThreshold"]
    asleep = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= asleep + 30
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"] == deployment["spec"]["selector"]
    objects = rendered(*LEAST)
    budget = objects["PodDisruptionBudget", "rs-rarestream"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == deployment["spec"]["selector"]


@with_helm
def test_only_the_autoscaler_sets_the_number_of_nodes() -> None:
    objects = rendered(*FULL)
    scaler = objects["HorizontalPodAutoscaler", "rs-rarestream"]["spec"]
    assert scaler["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "rs-rarestream"}
    deployment = objects["Deployment", "rs-rarestream"]
    assert "replicas" not in deployment["spec"]
    assert "cpu" in deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]


@with_helm
def test_keys_and_urls_are_in_secrets_only() -> None:
    objects = rendered(*FULL)
    for (kind, _), document in objects.items():
        assert kind == "Secret" or PASSWORD not in json.dumps(document)
    secret = objects["Secret", "rs-rarestream"]["stringData"]
    assert secret == {"keys.json": "[]", "store-url": f"redis://:{PASSWORD}@rs-rarestream-redis:6379/0"}
    assert ("Service", "rs-rarestream-redis") in objects

    for options, keys, store in (
        (FULL, ("rs-rarestream", "keys.json"), ("rs-rarestream", "store-url")),
        (KEYED, ("keys", "k.json"), ("redis", "url")),
    ):
        _, pod, container = node(*options)
        variables = environment(container)
        assert variables["RARESTREAM_STORE"] == {"secretKeyRef": {"name": store[0], "key": store[1]}}
        (volume,) = (volume["secret"] for volume in pod["volumes"] if volume["name"] == "keys")
        assert (volume["secretName"], volume["items"]) == (keys[0], [{"key": keys[1], "path": "keys.json"}])
        (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "keys")
        assert variables["RARESTREAM_KEYS"] == f"{mount['mountPath']}/keys.json"
        assert "subPath" not in mount  # with it, a changed Secret would not reach the pod
        assert "RARESTREAM_INSECURE" not in variables
    assert environment(node(*LEAST)[2])["RARESTREAM_INSECURE"] == "true"

    changed = node(*(item.replace("keys.file=[]", "keys.file=[1]") for item in FULL))[0]
    before, after = (item["spec"]["template"]["metadata"]["annotations"] for item in (node(*FULL)[0], changed))
    assert before["checksum/secret"] != after["checksum/secret"]
    assert (before["note"], node(*FULL)[0]["spec"]["template"]["metadata"]["labels"]["team"]) == ("x", "risk")


@with_helm
def test_certificates_and_node_addresses() -> None:
    _, pod, container = node(*FULL)
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tls")
    variables = environment(container)
    assert variables["RARESTREAM_TLS_CERTIFICATE"] == f"{mount['mountPath']}/tls.crt"  # as kubernetes.io/tls names them
    assert variables["RARESTREAM_TLS_KEY"] == f"{mount['mountPath']}/tls.key"
    assert next(volume["secret"]["secretName"] for volume in pod["volumes"] if volume["name"] == "tls") == "certificate"

    spread = environment(node(*SPREAD)[2])
    names = list(spread)
    assert spread["RARESTREAM_ADVERTISE"] == "http://[$(POD_IP)]:8000"
    assert names.index("POD_IP") < names.index("RARESTREAM_ADVERTISE")  # only what stands before it is put in
    assert spread["RARESTREAM_REPLICATION"] == "2"
    assert spread["RARESTREAM_ACKS"] == "aof"
    assert variables["RARESTREAM_HOST"] == "0.0.0.0"
    assert environment(node(*FULL, "--set-string", "listen=::")[2])["RARESTREAM_HOST"] == "::"


@with_helm
def test_every_writable_path_of_the_image_is_mounted() -> None:
    deployment, pod, container = node(*FULL)
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    (cache,) = (
        pair.removeprefix("NUMBA_CACHE_DIR=") for pair in dict(instructions())["ENV"].split() if "CACHE_DIR" in pair
    )
    assert {"/tmp", cache} <= mounts
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert container["image"] == f"rarestream:0.1.0@sha256:{'0' * 64}"
    assert "command" not in container  # the image's entrypoint and command
    assert deployment["metadata"]["labels"]["app.kubernetes.io/version"] == "0.1.0"


@with_helm
def test_selectors_match_their_pods() -> None:
    objects = rendered(*FULL)
    pods = {
        name: document["spec"]["template"]["metadata"]["labels"]
        for (kind, name), document in objects.items()
        if kind in ("Deployment", "StatefulSet")
    }

    def selected(labels: dict[str, str]) -> list[str]:
        return [name for name, has in pods.items() if labels.items() <= has.items()]

    for (kind, name), document in objects.items():
        spec = document.get("spec", {})
        if kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
            assert selected(spec["selector"]["matchLabels"]) == [name]
        elif kind == "Service":
            assert selected(spec["selector"]) == [name]
        elif kind == "NetworkPolicy":
            assert selected(spec["podSelector"]["matchLabels"]) == [name]
            (rule,) = spec["ingress"]
            assert all(rule["from"]), "an empty peer lets everyone in"
            (port,) = rule["ports"]
            (container,) = objects["StatefulSet" if name.endswith("redis") else "Deployment", name]["spec"]["template"][
                "spec"
            ]["containers"]
            assert port["port"] in {item["name"] for item in container["ports"]}
    monitored = objects["ServiceMonitor", "rs-rarestream"]["spec"]["selector"]["matchLabels"]
    services = [
        name
        for (kind, name), item in objects.items()
        if kind == "Service" and monitored.items() <= item["metadata"]["labels"].items()
    ]
    assert services == ["rs-rarestream"]


@with_helm
def test_the_service_monitor_matches_the_rules() -> None:
    monitor = rendered(*FULL)["ServiceMonitor", "rs-rarestream"]["spec"]
    assert monitor["jobLabel"] == "app.kubernetes.io/name"  # the rules' job="rarestream"
    service = rendered(*FULL)["Service", "rs-rarestream"]
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "rarestream"
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {item["name"] for item in service["spec"]["ports"]}
    assert (endpoint["path"], endpoint["scheme"]) == ("/metrics", "https")
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "scrape", "key": "key"}}
    assert endpoint["tlsConfig"] == {"serverName": "rarestream"}


@with_helm
def test_rules_and_dashboard_link_to_the_single_copies() -> None:
    """The chart has links to the single copies; Helm packages their targets."""
    deploy = CHART.parent.parent
    rules, dashboard = deploy / "prometheus" / "rarestream.rules.yaml", deploy / "grafana" / "rarestream.json"
    assert (CHART / "files" / rules.name).readlink() == Path("../../../prometheus") / rules.name
    assert (CHART / "files" / dashboard.name).readlink() == Path("../../../grafana") / dashboard.name
    objects = rendered(*FULL)
    assert objects["PrometheusRule", "rs-rarestream"]["spec"] == yaml.safe_load(rules.read_text())
    config = objects["ConfigMap", "rs-rarestream-dashboard"]
    assert json.loads(config["data"]["rarestream.json"]) == json.loads(dashboard.read_text())
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len(json.dumps(config)) < 2**20  # of a ConfigMap


@with_helm
def test_redis_persists_acknowledged_data() -> None:
    objects = rendered(*FULL)
    secret = objects["Secret", "rs-rarestream-redis"]["stringData"]
    lines = [line.split(maxsplit=1) for line in secret["redis.conf"].splitlines() if not line.startswith("#")]
    directives = dict(lines)
    assert directives["requirepass"] == secret["password"] == PASSWORD
    assert (directives["appendonly"], directives["appendfsync"], directives["save"]) == ("yes", "always", '""')
    assert directives["maxmemory-policy"] == "noeviction"
    spec = objects["StatefulSet", "rs-rarestream-redis"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    (claim,) = spec["volumeClaimTemplates"]
    assert mounts[claim["metadata"]["name"]] == directives["dir"] == "/data"
    assert claim["spec"]["storageClassName"] == "ssd"
    assert container["args"] == ["redis-server", f"{mounts['settings']}/redis.conf"]
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "r"}]
    policy = objects["NetworkPolicy", "rs-rarestream-redis"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert "egress" not in policy


@with_helm
def test_the_network_policy_limits_the_traffic_of_nodes() -> None:
    policy = rendered(*LEAST)["NetworkPolicy", "rs-rarestream"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert "egress" not in policy
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.6/32"}}], "ports": [{"port": 6379}]}
    objects = rendered(*LEAST, "--set-json", f"networkPolicy.egress={json.dumps([rule])}")
    policy = objects["NetworkPolicy", "rs-rarestream"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    first, second = policy["egress"]
    labels = objects["Deployment", "rs-rarestream"]["spec"]["template"]["metadata"]["labels"]
    assert first["to"][0]["podSelector"]["matchLabels"].items() <= labels.items()
    assert second == rule
    kubernetes_validate.validate(objects["NetworkPolicy", "rs-rarestream"], "1.37.0", strict=True)


@with_helm
def test_notes_explain_access_and_open_ports(tmp_path: Path) -> None:
    for options, insecure in ((LEAST, True), (KEYED, False)):
        output = helm("install", "rs", str(CHART), "--dry-run=client", "--namespace", "scoring", *options).stdout
        assert "kubectl -n scoring port-forward service/rs-rarestream 8000:8000" in output
        assert (re.search(r"\bkey\b", output.partition("NOTES:")[2], re.IGNORECASE) is not None) is insecure
    helm("package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    packed = helm("template", "rs", str(package), *FULL).stdout
    assert "alert: RarestreamDown" in packed


@with_helm
def test_release_names_produce_valid_object_names() -> None:
    assert ("Service", "rarestream") in rendered(*LEAST, release="rarestream")
    assert ("Service", "cards-rarestream") in rendered(*LEAST, release="cards")
    assert ("Service", "scores") in rendered(*LEAST, "--set", "fullnameOverride=scores")
    long = [name for _, name in rendered(*FULL, release="r" * 53)]
    assert max(len(name) for name in long) <= 63

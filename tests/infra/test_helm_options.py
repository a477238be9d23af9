"""Options of the chart: volumes, scheduling of pods, ingress, observation."""

import hashlib
import json
from typing import Any

import pytest
import yaml
from helm_python.errors import HelmError

from schemas.streams import PARTITIONS
from tests.infra.chart import (
    DAEMONSET,
    daemonset_objects,
    example_objects,
    merged,
    objects_of,
    rendered,
    workloads,
)
from tests.infra.variables import CLUSTER_AGENT, INFRA
from tunery.cli._options import Address
from tunery.cli.backup import command as backup_command

# --- pods ---------------------------------------------------------------------------------------


def test_review2_p9_all_pods_get_what_an_operator_mounts() -> None:
    pods: dict[str, Any] = {
        "extraVolumes": [{"name": "vault", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "vault", "mountPath": "/vault", "readOnly": True}],
        "extraEnvFrom": [{"secretRef": {"name": "proxy"}}],
    }
    for backend in ({}, DAEMONSET):
        for item, pod in workloads(tuple(objects_of(rendered(merged(backend, {"pods": pods}))))):
            assert pods["extraVolumes"][0] in pod["spec"]["volumes"], item["metadata"]["name"]
            for container in pod["spec"]["containers"]:
                assert container["volumeMounts"].count(pods["extraVolumeMounts"][0]) == 1
                assert container["envFrom"][-1] == pods["extraEnvFrom"][0]


def test_review2_p15_pods_are_placed_as_values_say_and_a_service_differently() -> None:
    pods: dict[str, Any] = {
        "nodeSelector": {"pool": "control"},
        "tolerations": [{"key": "control", "operator": "Exists"}],
        "priorityClassName": "platform",
        "affinity": {"nodeAffinity": {}},
        "topologyKeys": ["topology.kubernetes.io/zone", "kubernetes.io/hostname"],
        "annotations": {"revision": "7"},
    }
    changes = {"pods": pods, "services": {"billing": {"pod": {"priorityClassName": "money"}}}}
    placed = {
        item["metadata"]["name"]: pod
        for item, pod in workloads(tuple(objects_of(rendered(changes))))
    }
    for name, pod in placed.items():
        spec = pod["spec"]
        for field in ("nodeSelector", "tolerations", "affinity"):
            assert spec[field] == pods[field], name
        priority = "money" if name == "tunery-billing" else pods["priorityClassName"]
        assert spec["priorityClassName"] == priority
        if name not in ("tunery-topics", "tunery-roles"):
            assert pod["metadata"]["annotations"]["revision"] == "7"
        spread = [each["topologyKey"] for each in spec.get("topologySpreadConstraints", ())]
        alone = ("tunery-topics", "tunery-roles", f"tunery-cluster-{CLUSTER_AGENT}")
        assert spread == ([] if name in alone else pods["topologyKeys"])


def test_review2_p15_a_changed_secret_changes_the_pods_that_read_it_at_their_start() -> None:
    """Helm reads Secrets of a cluster (`lookup`); without one each of them is empty here."""
    for item, pod in workloads((*example_objects(), *daemonset_objects())):
        if item["kind"] == "Job":  # a hook is made anew each time
            continue
        read = {
            source["secretRef"]["name"]
            for container in pod["spec"]["containers"]
            for source in container["envFrom"]
        }
        read |= {
            volume["secret"]["secretName"]
            for volume in pod["spec"]["volumes"]
            if volume["name"] in ("kafka-authority", "signing")
        }
        contents = json.dumps([{}] * len(read), separators=(",", ":"))
        checksum = hashlib.sha256(contents.encode()).hexdigest()
        assert pod["metadata"]["annotations"]["tunery.dev/secrets"] == checksum


# --- callers -----------------------------------------------------------------------------------


def test_review2_p15_callers_come_by_an_ingress_or_a_route_with_tls() -> None:
    changes = {
        "gateway": {
            "ingress": {"enabled": True, "host": "tunery.example.com", "tlsSecret": "tls"},
            "httpRoute": {
                "enabled": True,
                "hostnames": ["tunery.example.com"],
                "parentRefs": [{"name": "public", "namespace": "gateways"}],
            },
        }
    }
    objects = {item["kind"]: item.get("spec", {}) for item in objects_of(rendered(changes))}
    services = [item for item in example_objects() if item["kind"] == "Service"]
    (ports,) = [
        item["spec"]["ports"] for item in services if item["metadata"]["name"] == "tunery-gateway"
    ]
    ingress, route = objects["Ingress"], objects["HTTPRoute"]
    (path,) = ingress["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "tunery-gateway", "port": {"name": "http"}}
    assert ingress["tls"] == [{"hosts": ["tunery.example.com"], "secretName": "tls"}]
    assert route["rules"] == [{"backendRefs": [{"name": "tunery-gateway", "port": 80}]}]
    assert [(port["name"], port["port"]) for port in ports] == [("http", 80)]


@pytest.mark.parametrize("engine", [True, False])
def test_review2_p15_gateways_become_more_with_their_use_of_cpus(engine: bool) -> None:
    changes = {"gateway": {"autoscaling": {"enabled": True}}, "engine": {"enabled": engine}}
    objects = tuple(objects_of(rendered(changes)))
    (scaler,) = [item["spec"] for item in objects if item["kind"] == "HorizontalPodAutoscaler"]
    (gateway,) = [
        item for item, _ in workloads(objects) if item["metadata"]["name"] == "tunery-gateway"
    ]
    assert scaler["scaleTargetRef"]["kind"] == gateway["kind"]
    assert scaler["scaleTargetRef"]["name"] == "tunery-gateway"
    assert "replicas" not in gateway["spec"], "an update would undo what it scaled"
    assert scaler["minReplicas"] < scaler["maxReplicas"] == PARTITIONS


# --- observation -------------------------------------------------------------------------------


def test_review2_p15_an_operator_of_prometheus_gets_the_rules_and_scrapes_all_processes() -> None:
    labels = {"release": "prometheus"}
    objects = tuple(objects_of(rendered({"monitoring": {"operator": True, "labels": labels}})))
    monitor, rules = (
        next(item for item in objects if item["kind"] == kind)
        for kind in ("PodMonitor", "PrometheusRule")
    )
    for item in (monitor, rules):
        assert labels.items() <= item["metadata"]["labels"].items()
    declared = yaml.safe_load((INFRA / "prometheus" / "rules.yml").read_text(encoding="utf-8"))
    assert rules["spec"] == declared
    scrapes = yaml.safe_load((INFRA / "prometheus" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = {scrape["job_name"] for scrape in scrapes["scrape_configs"]}
    endpoints = {each["port"]: each for each in monitor["spec"]["podMetricsEndpoints"]}
    for endpoint in endpoints.values():
        assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": job}]
    selector = monitor["spec"]["selector"]["matchLabels"]
    for item, pod in workloads(objects):
        assert selector.items() <= pod["metadata"]["labels"].items()
        if item["kind"] != "Job":
            for container in pod["spec"]["containers"]:
                assert {port["name"] for port in container["ports"]} & endpoints.keys()


def test_review2_p15_grafana_finds_all_dashboards() -> None:
    objects = objects_of(rendered({"monitoring": {"dashboards": True}}))
    maps = [item for item in objects if item["kind"] == "ConfigMap"]
    mounted: dict[str, Any] = {}
    for item in maps:
        assert item["metadata"]["labels"]["grafana_dashboard"] == "1"
        mounted |= {name: json.loads(text) for name, text in item["data"].items()}
    folder = INFRA / "grafana" / "dashboards"
    assert mounted == {
        f"tunery-{path.name}": json.loads(path.read_text(encoding="utf-8"))
        for path in folder.iterdir()
    }


# --- backups -----------------------------------------------------------------------------------

BACKUP = {"backup": {"destination": "s3://backups/tunery", "keep": 12, "keepDaily": 7}}


def test_backups_are_taken_where_a_destination_is_set() -> None:
    assert not [item for item in example_objects() if item["kind"] == "CronJob"]
    objects = tuple(objects_of(rendered(BACKUP)))
    (cron,) = [item["spec"] for item in objects if item["kind"] == "CronJob"]
    assert cron["concurrencyPolicy"] == "Forbid"
    pod = cron["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    words = [*container["command"], *container["args"]]
    asked = backup_command.make_context("backup", words[2:]).params
    assert words[:2] == ["tunery", "backup"]
    assert (asked["folder"], asked["keep"], asked["keep_daily"]) == (
        Address("backups", "tunery/"),
        12,
        7,
    )
    accounts = {item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"}
    assert pod["serviceAccountName"] in accounts


def test_backup_has_the_keys_of_tenants_and_not_what_opens_them() -> None:
    """Its pod also runs without rights, as all pods do."""
    (cron,) = [item for item in objects_of(rendered(BACKUP)) if item["kind"] == "CronJob"]
    pod = cron["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    folder = variables["TUNERY_KEYSTORE_DIR"].rsplit("/", 1)[0]
    assert mounts[folder]["readOnly"] is True
    assert "roots" not in str(pod["volumes"])
    assert {mount["name"] for mount in mounts.values()} == {v["name"] for v in pod["volumes"]}
    assert [source["secretRef"]["name"] for source in container["envFrom"]] == [
        "tunery-operator",
        "tunery-backup",
    ]
    assert {"TUNERY_KAFKA_BOOTSTRAP", "TUNERY_S3_ENDPOINT", "TUNERY_S3_BUCKET"} <= variables.keys()
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("destination", ["/mnt/backup", "s3://", "https://backups/tunery"])
def test_backups_go_to_a_bucket_alone(destination: str) -> None:
    with pytest.raises(HelmError, match="destination"):
        rendered({"backup": {"destination": destination}})

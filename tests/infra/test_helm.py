"""The chart: Helm accepts it, its pods have what processes need, and wrong values are refused."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from helm_python.chart import lint
from helm_python.errors import HelmError

from schemas.access import opens_keys
from schemas.topics import PARTITIONS
from tests.infra.chart import (
    CHART,
    RECORDED,
    example,
    example_objects,
    merged,
    objects_of,
    rendered,
    text_of,
)
from tests.infra.variables import (
    CONTROL_PLANE,
    NODE,
    environment,
    load_as,
    unknown_in,
)
from tunery.cli.kafka import prepare
from tunery.local.settings import OFFLINE
from tunery.local.stack import AGENT, AGENT_STOP_MS_MAX, EXPORTER, service_specs
from tunery.provenance.keys import CERTIFICATES, PRIVATE
from tunery.runtime.bus.signing import read_keys

WARNING: Final = 2  # of Helm's severities
WORKLOADS: Final = ("Deployment", "StatefulSet", "DaemonSet", "Job")
#: what the Secrets hold that are made by hand
SECRETS: Final = {
    "tunery-shared": {
        "TUNERY_S3_ACCESS_KEY": "access",
        "TUNERY_S3_SECRET_KEY": "secret",
        "TUNERY_VALKEY_URL": "rediss://:x@valkey.example.com",
    },
    "tunery-operator": {"TUNERY_KAFKA_USERNAME": "operator", "TUNERY_KAFKA_PASSWORD": "x"},
}


def workloads(objects: "tuple[dict[str, Any], ...]") -> Iterator[tuple[dict[str, Any], Any]]:
    """Objects that make pods, and the template of their pods."""
    for item in objects:
        if item["kind"] in WORKLOADS:
            yield item, item["spec"]["template"]


def containers() -> dict[str, dict[str, Any]]:
    """Containers of the example by name; each has one of its own."""
    every = [
        container
        for _, pod in workloads(example_objects())
        for container in pod["spec"]["containers"]
    ]
    named = {container["name"]: container for container in every}
    assert len(named) == len(every)
    return named


def test_helm_finds_nothing_wrong() -> None:
    report = lint(CHART, example(), strict=True, kube_version="v1.30.0")
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    assert [said for said in report["messages"] if said["severity"] >= WARNING] == []


def test_the_example_is_rendered_as_recorded() -> None:
    assert text_of(rendered({})) == RECORDED.read_text(encoding="utf-8"), (
        "python -m tests.infra.chart"
    )


# --- what runs ---------------------------------------------------------------------------------


def test_every_process_has_a_container_that_runs_its_module() -> None:
    with_exporter = tuple(objects_of(rendered({"services": {EXPORTER: {"replicas": 1}}})))
    started = {
        word
        for _, pod in workloads(with_exporter)
        for container in pod["spec"]["containers"]
        for word in (*container.get("args", ()), *container.get("command", ())[-1:])
        if "services." in word
    }
    assert started == {f"services.{name}" for name in CONTROL_PLANE} | {
        word for word in started if word.endswith(f"exec python -m services.{AGENT}\n")
    }
    assert len(started) == len(CONTROL_PLANE) + 1
    kinds = {item["metadata"]["name"]: item["kind"] for item, _ in workloads(with_exporter)}
    assert kinds.pop("tunery-agent") == "DaemonSet"
    assert kinds.pop("tunery-topics") == "Job"
    assert kinds.pop("tunery-gateway") == "StatefulSet", "its engine has a volume"
    assert set(kinds.values()) == {"Deployment"}


def test_without_an_engine_the_gateway_is_a_deployment() -> None:
    objects = tuple(objects_of(rendered({"engine": {"enabled": False}})))
    (gateway,) = [
        (item, pod) for item, pod in workloads(objects) if item["metadata"]["name"].endswith("way")
    ]
    item, pod = gateway
    assert item["kind"] == "Deployment"
    assert [container["name"] for container in pod["spec"]["containers"]] == ["gateway"]
    assert {"name": "data", "emptyDir": {}} in pod["spec"]["volumes"]


def test_without_agents_nothing_is_left_of_them() -> None:
    objects = tuple(objects_of(rendered({"agents": {"enabled": False, "nodes": []}})))
    assert [item["kind"] for item, _ in workloads(objects) if "agent" in str(item)] == []


@pytest.mark.parametrize("name", [*(n for n in CONTROL_PLANE if n != EXPORTER), "agent"])
def test_a_container_has_the_variables_that_its_process_needs(
    name: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = containers()[name]
    file = f"node.{NODE}" if name == "agent" else name
    own = environment((written / f"{file}.env").read_text(encoding="utf-8"))
    secrets = {**SECRETS, f"tunery-{name}": {**own, "TUNERY_KAFKA_PASSWORD": "x"}}
    variables: dict[str, str] = {}
    for source in container["envFrom"]:
        variables |= secrets[source["secretRef"]["name"]]
    for variable in container["env"]:
        variables[variable["name"]] = variable.get("value", "10.1.2.3")
    if name == "agent":
        variables = {**variables, **run_command(container, secrets["tunery-agent"])}
    authority = variables.pop("TUNERY_KAFKA_CA_FILE")
    assert authority in mounted_files(container, "kafka-authority", "ca.crt")
    settings = load_as(AGENT if name == "agent" else name, variables, monkeypatch)
    assert read_keys(settings.command_keys or "").sender == settings.kafka_username == file
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.metrics_port == ports["engine-metrics" if name == "engine" else "metrics"]
    assert str(settings.metrics_host) == "0.0.0.0"  # noqa: S104  # of a pod
    assert OFFLINE.items() <= variables.items()
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for folder in (settings.data_dir, Path("/tmp")):  # noqa: S108  # of a pod
        assert str(folder) in mounts.values()
    opens = opens_keys("trainer" if name == "agent" else name)
    assert (mounts.get("keys") == str(settings.keys.parent)) == opens
    assert ("keys" in mounts) == opens


def run_command(container: dict[str, Any], variables: dict[str, str]) -> dict[str, str]:
    """What the agent's process gets: its shell is run, with `env` in the place of Python."""
    lines = ["# of a node", "", *(f"{name}={value}" for name, value in variables.items())]
    read, write = os.pipe()
    os.write(write, "\n".join([*lines, ""]).encode())
    os.close(write)
    script = container["command"][-1].replace("/run/secrets/node.env", f"/dev/fd/{read}")
    script = script.replace("exec python -m services.trainer", "exec env -0")
    shell = [*container["command"][:-1], script]
    done = subprocess.run(
        shell, env={"PATH": os.environ["PATH"]}, capture_output=True, pass_fds=[read], check=True
    )
    os.close(read)
    return dict(pair.split("=", 1) for pair in done.stdout.decode().split("\0") if "=" in pair)


def mounted_files(container: dict[str, Any], volume: str, *names: str) -> set[str]:
    return {
        f"{mount['mountPath']}/{name}"
        for mount in container["volumeMounts"]
        if mount["name"] == volume
        for name in names
    }


def test_no_variable_is_one_that_nobody_reads() -> None:
    texts = [RECORDED, CHART / "values.yaml", CHART / "values.schema.json"]
    assert [unknown_in(text.read_text(encoding="utf-8")) for text in texts] == [set()] * 3


def test_models_are_signed_with_the_key_of_a_secret() -> None:
    variables = {variable["name"]: variable for variable in containers()["registry"]["env"]}
    folder = variables["TUNERY_SIGNING_DIR"]["value"]
    mounted = mounted_files(containers()["registry"], "signing", PRIVATE, CERTIFICATES)
    assert mounted == {f"{folder}/{PRIVATE}", f"{folder}/{CERTIFICATES}"}


def test_topics_are_prepared_by_a_command_that_is_there_before_the_services() -> None:
    container = containers()["topics"]
    assert container["command"] == ["tunery", "kafka", "prepare"]
    context = prepare.make_context("prepare", list(container["args"]))
    assert context.params["nodes"] == ("gpu-07", "gpu-08")
    (job,) = [item for item in example_objects() if item["kind"] == "Job"]
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    no_hooks = [
        item
        for item in example_objects()
        if item["kind"] == "ServiceAccount" and item["metadata"]["name"].endswith("topics")
    ]
    assert [item["metadata"]["annotations"]["helm.sh/hook"] for item in no_hooks] == [
        "pre-install,pre-upgrade"
    ]


# --- how it runs -------------------------------------------------------------------------------


def test_pods_run_without_rights_on_a_root_that_cannot_be_written() -> None:
    for item, pod in workloads(example_objects()):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False, item["metadata"]["name"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["limits"]["memory"]
            assert not container["image"].endswith(":latest")


def test_probes_ask_the_port_of_health_and_the_gateway_where_balancers_do() -> None:
    for name, container in containers().items():
        if name == "topics":
            continue
        port = "engine-metrics" if name == "engine" else "metrics"
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port}
        if name != "engine":  # without its engine a gateway answers all else
            asked = "http" if name == "gateway" else "metrics"
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": asked}


def test_pods_have_the_time_that_processes_need_to_stop() -> None:
    for item, pod in workloads(example_objects()):
        if item["kind"] == "Job":
            continue
        grace_ms = 1_000 * pod["spec"]["terminationGracePeriodSeconds"]
        (spec,) = service_specs(["gateway"])
        assert grace_ms >= (AGENT_STOP_MS_MAX if item["kind"] == "DaemonSet" else spec.stop_ms_max)


def test_what_objects_name_is_there() -> None:
    objects = example_objects()
    accounts = {item["metadata"]["name"] for item in objects if item["kind"] == "ServiceAccount"}
    labels = [pod["metadata"]["labels"] for _, pod in workloads(objects)]
    for item, pod in workloads(objects):
        assert pod["spec"]["serviceAccountName"] in accounts
        own = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"] for volume in pod["spec"]["volumes"]} | own
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
        if item["kind"] != "Job":
            selector = item["spec"]["selector"]["matchLabels"]
            assert [selector.items() <= label.items() for label in labels].count(True) == 1
    for item in objects:
        if item["kind"] in ("NetworkPolicy", "PodDisruptionBudget"):
            selector = item["spec"].get("podSelector", item["spec"].get("selector"))["matchLabels"]
            assert any(selector.items() <= label.items() for label in labels), item["metadata"]


def test_a_service_with_several_replicas_loses_one_at_a_time() -> None:
    objects = tuple(objects_of(rendered({"services": {"eval": {"replicas": 1}}})))
    budgets = {item["metadata"]["name"] for item in objects if item["kind"].endswith("Budget")}
    several = [name for name in CONTROL_PLANE if name not in (EXPORTER, "engine", "eval")]
    assert budgets == {f"tunery-{name}" for name in several}
    for item in objects:
        if item["kind"] == "Deployment":
            assert item["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_only_the_gateway_is_open_and_policies_can_be_left_out() -> None:
    policies = {
        item["metadata"]["name"]: item["spec"]
        for item in example_objects()
        if item["kind"] == "NetworkPolicy"
    }
    assert policies.keys() == {f"tunery-{name}" for name in ("all", "gateway", "agent", "notifier")}
    opened = [
        name
        for name, spec in policies.items()
        if any("from" not in rule for rule in spec.get("ingress", ()))
    ]
    assert opened == ["tunery-gateway"]
    off = objects_of(rendered({"networkPolicy": {"enabled": False}}))
    assert [item for item in off if item["kind"] == "NetworkPolicy"] == []


# --- values ------------------------------------------------------------------------------------


def test_the_chart_bounds_replicas_by_the_number_of_partitions() -> None:
    rendered({"services": {"billing": {"replicas": PARTITIONS}}})
    with pytest.raises(HelmError, match=r"billing.replicas"):
        rendered({"services": {"billing": {"replicas": PARTITIONS + 1}}})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"env": {"TUNERY_POSTGRES_DSN": "postgresql://u:p@h/d"}}, "TUNERY_POSTGRES_DSN"),
        ({"services": {"gateway": {"env": {"TUNERY_COMMAND_KEYS": "off"}}}}, "TUNERY_COMMAND_KEYS"),
        ({"env": {"TUNERY_KAFKA_REPLICATION": "9"}}, "TUNERY_KAFKA_REPLICATION"),
        ({"env": {"TUNERY_S3_ENDPOINT": "s3.example.com"}}, "TUNERY_S3_ENDPOINT"),
        ({"env": {"TUNERY_S3_ENDPOINT": None}}, "TUNERY_S3_ENDPOINT"),
        ({"images": {"control": {"tag": "latest"}}}, "images.control"),
        ({"images": {"control": {"repository": ""}}}, "images.control.repository"),
        ({"images": {"train": {"digest": "sha256:1234"}}}, "images.train.digest"),
        ({"services": {"gateway": {"replicas": 0}}}, "services.gateway.replicas"),
        ({"services": {"trainer": {"replicas": 1}}}, "trainer"),
        ({"agents": {"nodes": []}}, "agents.nodes"),
        ({"agents": {"nodes": ["GPU 7"]}}, "agents.nodes.0"),
        ({"agents": {"folder": "data"}}, "agents.folder"),
        ({"storage": {"bases": {"size": "large"}}}, "storage.bases.size"),
        ({"metrics": {"port": 80}}, "metrics.port"),
        ({"networkPolicies": {}}, "networkPolicies"),
    ],
)
def test_wrong_values_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(HelmError) as refused:
        rendered(changes)
    assert named in str(refused.value).replace("/", ".")


def test_values_without_what_has_no_default_are_refused() -> None:
    report = lint(CHART, merged(example(), {"images": None}), strict=True)
    assert report["errors"], "there is no image by default"

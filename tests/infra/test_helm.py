"""The chart: Helm accepts it, its pods have what processes need, and wrong values are refused."""

import os
import subprocess
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import pytest
from helm_python.chart import lint
from helm_python.errors import HelmError

from schemas.access import opens_keys
from schemas.streams import PARTITIONS
from services.trainer.settings import TrainerSettings
from tests.infra.chart import (
    CHART,
    DAEMONSET,
    DAEMONSET_RECORDED,
    RECORDED,
    daemonset_objects,
    example,
    example_objects,
    merged,
    objects_of,
    rendered,
    rendered_agents,
    text_of,
    workloads,
)
from tests.infra.variables import (
    CLUSTER,
    CLUSTER_AGENT,
    CONTROL_PLANE,
    NODE,
    environment,
    load_as,
    unknown_in,
)
from tunery.cli.kafka import prepare
from tunery.cli.postgres import prepare as prepare_roles
from tunery.local.settings import OFFLINE
from tunery.local.stack import AGENT, AGENT_STOP_MS_MAX, EXPORTER, service_specs
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.roots import Roots, create_root
from tunery.platform.settings import load
from tunery.provenance.keys import CERTIFICATES, PRIVATE
from tunery.runtime.bus.signing import read_keys

WARNING: Final = 2  # of Helm's severities
VIEWS: Final = "gateway.fill_views"  # what fills the tables of gateways
#: what the Secrets hold that are made by hand
SECRETS: Final = {
    "tunery-shared": {
        "TUNERY_S3_ACCESS_KEY": "access",
        "TUNERY_S3_SECRET_KEY": "a-secret-1",
        "TUNERY_VALKEY_URL": "rediss://:x-1@valkey.example.com",
    },
    "tunery-operator": {"TUNERY_KAFKA_USERNAME": "operator", "TUNERY_KAFKA_PASSWORD": "x-1"},
}


def containers() -> dict[str, dict[str, Any]]:
    """Containers of both examples by name; in each a container has a name of its own."""
    named: dict[str, dict[str, Any]] = {}
    for objects in (daemonset_objects(), example_objects()):
        every = [each for _, pod in workloads(objects) for each in pod["spec"]["containers"]]
        names = [container["name"] for container in every]
        assert len(set(names)) == len(names)
        named |= dict(zip(names, every, strict=True))
    return named


def policies_of(objects: "tuple[dict[str, Any], ...]") -> dict[str, dict[str, Any]]:
    return {
        item["metadata"]["name"]: item["spec"]
        for item in objects
        if item["kind"] == "NetworkPolicy"
    }


def test_helm_finds_nothing_wrong() -> None:
    report = lint(CHART, example(), strict=True, kube_version="v1.30.0")
    assert report["total_charts_linted"] == 1
    assert report["errors"] == []
    assert [said for said in report["messages"] if said["severity"] >= WARNING] == []


def test_the_examples_are_rendered_as_recorded() -> None:
    renderings = {RECORDED: rendered({}), DAEMONSET_RECORDED: rendered_agents()}
    for recorded, texts in renderings.items():
        assert text_of(texts) == recorded.read_text(encoding="utf-8"), "python -m tests.infra.chart"


# --- what runs ---------------------------------------------------------------------------------


def test_every_process_has_a_container_that_runs_its_module() -> None:
    with_exporter = tuple(objects_of(rendered({"services": {EXPORTER: {"replicas": 1}}})))
    started = {
        container["args"][1]
        for _, pod in workloads(with_exporter)
        for container in pod["spec"]["containers"]
        if container.get("args", ("",))[0] == "-m"
    }
    assert started == {f"services.{name}" for name in (*CONTROL_PLANE, CLUSTER, VIEWS)}
    assert containers()["agent"]["command"][-1].endswith(f"exec python -m services.{AGENT}\n")
    kinds = {item["metadata"]["name"]: item["kind"] for item, _ in workloads(with_exporter)}
    assert kinds.pop("tunery-topics") == kinds.pop("tunery-roles") == "Job"
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


def test_review2_p15_no_claim_keeps_a_gateway_on_a_lost_node_where_its_engine_needs_none() -> None:
    objects = tuple(objects_of(rendered({"engine": {"ephemeral": True, "size": "20Gi"}})))
    (gateway,) = [
        (item, pod) for item, pod in workloads(objects) if item["metadata"]["name"].endswith("way")
    ]
    item, pod = gateway
    assert item["kind"] == "Deployment"
    assert [each["name"] for each in pod["spec"]["containers"]] == ["gateway", "engine"]
    assert {"name": "data", "emptyDir": {"sizeLimit": "20Gi"}} in pod["spec"]["volumes"]
    assert "volumeClaimTemplates" not in item["spec"]


def test_without_agents_nothing_is_left_of_them() -> None:
    objects = tuple(objects_of(rendered({"nodes": {"backend": "none"}})))
    names = {item["metadata"]["name"] for item in objects}
    assert names & {"tunery-agent", f"tunery-cluster-{CLUSTER_AGENT}", "tunery-cluster"} == set()
    jobs = [pod["spec"]["containers"] for item, pod in workloads(objects) if item["kind"] == "Job"]
    assert [container for (container,) in jobs if "args" in container] == []


@pytest.mark.parametrize("fabric", ["", "eth0"])
def test_review2_p7_agents_reach_each_other_where_they_have_a_fabric(fabric: str) -> None:
    objects = tuple(objects_of(rendered(merged(DAEMONSET, {"agents": {"fabric": fabric}}))))
    (agent,) = [
        pod for item, pod in workloads(objects) if item["metadata"]["name"].endswith("agent")
    ]
    variables = {each["name"]: each for each in agent["spec"]["containers"][0]["env"]}
    assert variables.get("TUNERY_NODE_FABRIC", {}).get("value", "") == fabric
    (rule,) = policies_of(objects)["tunery-agent"]["ingress"]
    callers = [
        each["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for each in rule["from"]
    ]
    assert callers == ["gateway", *(["agent"] if fabric else [])]
    assert "ports" not in rule, "any free one"
    (to_agents,) = policies_of(objects)["tunery-to-agents"]["podSelector"]["matchExpressions"]
    assert to_agents["values"] == callers


@pytest.mark.parametrize(
    "name",
    [*(n for n in CONTROL_PLANE if n != EXPORTER), "agent", f"cluster-{CLUSTER_AGENT}", "views"],
)
def test_a_container_has_the_variables_that_its_process_needs(
    name: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    container = containers()[name]
    agents = {
        "agent": ("trainer", NODE, "agent"),
        f"cluster-{CLUSTER_AGENT}": (CLUSTER, CLUSTER_AGENT, f"node-{CLUSTER_AGENT}"),
        "views": ("gateway", "", "gateway"),
    }
    service, node, secret = agents.get(name, (name, "", name))
    file = f"node.{node}" if node else service
    own = environment((written / f"{file}.env").read_text(encoding="utf-8"))
    secrets = {**SECRETS, f"tunery-{secret}": {**own, "TUNERY_KAFKA_PASSWORD": "x-1"}}
    variables: dict[str, str] = {}
    for source in container["envFrom"]:
        variables |= secrets[source["secretRef"]["name"]]
    for variable in container["env"]:
        variables[variable["name"]] = variable.get("value", "10.1.2.3")
    if name == "agent":
        variables = {**variables, **run_command(container, secrets["tunery-agent"])}
    authority = variables.pop("TUNERY_KAFKA_CA_FILE")
    assert authority in mounted_files(container, "kafka-authority", "ca.crt")
    settings = load_as(service, variables, monkeypatch)
    if node:
        assert load(TrainerSettings).id == node
    assert read_keys(settings.command_keys or "").sender == settings.kafka_username == file
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert settings.metrics_port == ports["engine-metrics" if name == "engine" else "metrics"]
    assert str(settings.metrics_host) == "0.0.0.0"  # noqa: S104  # of a pod
    assert OFFLINE.items() <= variables.items()
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    for folder in (settings.data_dir, Path("/tmp")):  # noqa: S108  # of a pod
        assert str(folder) in mounts.values()
    opens = opens_keys("trainer" if node else name)
    assert (mounts.get("keys") == str(settings.keys.parent)) == opens
    assert ("keys" in mounts) == ("roots" in mounts) == opens


def run_command(container: dict[str, Any], variables: dict[str, str]) -> dict[str, str]:
    """Environment of the agent's process: its shell is run with `env` in place of Python."""
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


def test_no_variable_of_the_files_is_unknown() -> None:
    texts = [RECORDED, DAEMONSET_RECORDED, CHART / "values.yaml", CHART / "values.schema.json"]
    assert [unknown_in(text.read_text(encoding="utf-8")) for text in texts] == [set()] * 4


def test_models_are_signed_with_the_key_of_a_secret() -> None:
    variables = {variable["name"]: variable for variable in containers()["registry"]["env"]}
    folder = variables["TUNERY_SIGNING_DIR"]["value"]
    mounted = mounted_files(containers()["registry"], "signing", PRIVATE, CERTIFICATES)
    assert mounted == {f"{folder}/{PRIVATE}", f"{folder}/{CERTIFICATES}"}


@pytest.mark.parametrize(
    ("objects", "nodes"),
    [(example_objects(), ("k8s",)), (daemonset_objects(), ("gpu-07", "gpu-08"))],
)
def test_review2_p15_servers_are_prepared_before_the_services(
    objects: "tuple[dict[str, Any], ...]", nodes: tuple[str, ...]
) -> None:
    jobs = {
        item["metadata"]["name"]: (item, pod["spec"]["containers"][0])
        for item, pod in workloads(objects)
        if item["kind"] == "Job"
    }
    commands = {name: container["command"] for name, (_, container) in jobs.items()}
    assert commands == {
        "tunery-topics": ["tunery", "kafka", "prepare"],
        "tunery-roles": ["tunery", "postgres", "prepare"],
    }
    _, topics = jobs["tunery-topics"]
    assert prepare.make_context("prepare", list(topics["args"])).params["nodes"] == nodes
    _, roles = jobs["tunery-roles"]
    assert prepare_roles.make_context("prepare", list(roles.get("args", ())))
    accounts = [item for item in objects if item["kind"] == "ServiceAccount"]
    hooks = [item for item in accounts if item["metadata"]["name"] in jobs]
    for item in (*hooks, *(job for job, _ in jobs.values())):
        assert item["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert len(hooks) == len(jobs)


def test_roles_of_postgresql_are_the_operators_where_the_chart_has_no_owner() -> None:
    objects = objects_of(rendered({"secrets": {"databaseOwner": ""}}))
    assert [item["metadata"]["name"] for item in objects if item["kind"] == "Job"] == [
        "tunery-topics"
    ]


# --- how it runs -------------------------------------------------------------------------------


def test_pods_run_without_rights_on_a_root_that_cannot_be_written() -> None:
    for item, pod in workloads((*example_objects(), *daemonset_objects())):
        spec = pod["spec"]
        asks_kubernetes = item["metadata"]["name"] == f"tunery-cluster-{CLUSTER_AGENT}"
        assert spec["automountServiceAccountToken"] is asks_kubernetes
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
        if name in ("topics", "roles"):
            continue
        port = "engine-metrics" if name == "engine" else "metrics"
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": port}
        if name != "engine":  # without its engine a gateway answers all else
            asked = "http" if name == "gateway" else "metrics"
            assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": asked}


def test_pods_have_the_time_that_processes_need_to_stop() -> None:
    agents = ("tunery-agent", f"tunery-cluster-{CLUSTER_AGENT}")
    for item, pod in workloads((*example_objects(), *daemonset_objects())):
        if item["kind"] == "Job":
            continue
        grace_ms = 1_000 * pod["spec"]["terminationGracePeriodSeconds"]
        (spec,) = service_specs(["gateway"])
        is_agent = item["metadata"]["name"] in agents
        assert grace_ms >= (AGENT_STOP_MS_MAX if is_agent else spec.stop_ms_max)


@pytest.mark.parametrize("objects", [example_objects(), daemonset_objects()])
def test_what_objects_name_is_there(objects: "tuple[dict[str, Any], ...]") -> None:
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
        own_namespace = "namespace" not in item["metadata"]
        if item["kind"] in ("NetworkPolicy", "PodDisruptionBudget") and own_namespace:
            selector = item["spec"].get("podSelector", item["spec"].get("selector"))["matchLabels"]
            assert any(selector.items() <= label.items() for label in labels), item["metadata"]


def test_a_service_with_several_replicas_loses_one_at_a_time() -> None:
    objects = tuple(objects_of(rendered({"services": {"eval": {"replicas": 1}}})))
    budgets = {item["metadata"]["name"] for item in objects if item["kind"].endswith("Budget")}
    several = [name for name in CONTROL_PLANE if name not in (EXPORTER, "engine", "eval")]
    assert budgets == {f"tunery-{name}" for name in several}
    for item in objects:
        others = (f"tunery-cluster-{CLUSTER_AGENT}", "tunery-views")
        if item["kind"] == "Deployment" and item["metadata"]["name"] not in others:
            assert item["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_views_of_a_new_version_are_there_before_those_of_the_one_before_end() -> None:
    objects = {(item["kind"], item["metadata"]["name"]): item for item in example_objects()}
    spec = objects["Deployment", "tunery-views"]["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "120"]
    assert pod["terminationGracePeriodSeconds"] > 120
    assert container["readinessProbe"]["httpGet"]["port"] == "metrics"


@pytest.mark.parametrize(("replicas", "fills"), [(1, "false"), (0, "true")])
def test_gateways_fill_their_tables_where_no_process_does(replicas: int, fills: str) -> None:
    values = {"services": {"views": {"replicas": replicas}}}
    objects = tuple(objects_of(rendered(values)))
    pods = {item["metadata"]["name"]: pod["spec"] for item, pod in workloads(objects)}
    assert ("tunery-views" in pods) == bool(replicas)
    gateway = next(
        each for each in pods["tunery-gateway"]["containers"] if each["name"] == "gateway"
    )
    variables = {each["name"]: each.get("value") for each in gateway["env"]}
    assert variables["TUNERY_GATEWAY_FILLS_VIEWS"] == fills


def test_only_the_gateway_is_open_and_policies_can_be_left_out() -> None:
    policies = policies_of(example_objects())
    opened = [
        name
        for name, spec in policies.items()
        if any("from" not in rule for rule in spec.get("ingress", ()))
    ]
    assert opened == ["tunery-gateway"]
    off = objects_of(rendered({"networkPolicy": {"enabled": False}}))
    assert [item for item in off if item["kind"] == "NetworkPolicy"] == []


# --- keys of tenants ---------------------------------------------------------------------------


def test_review2_p9_root_keys_lie_apart_from_the_keys_that_they_wrap(tmp_path: Path) -> None:
    pod = next(
        pod
        for item, pod in workloads(example_objects())
        if item["metadata"]["name"].endswith("billing")
    )["spec"]
    (container,) = pod["containers"]
    variables = {each["name"]: each["value"] for each in container["env"]}
    volumes = {volume.pop("name"): volume for volume in deepcopy(pod["volumes"])}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    roots, keys = variables["TUNERY_ROOTS_DIR"], Path(variables["TUNERY_KEYSTORE_DIR"])
    assert mounts[roots]["readOnly"] is True
    assert volumes[mounts[roots]["name"]] == {
        "secret": {"secretName": "tunery-roots", "defaultMode": 0o440}
    }
    assert "persistentVolumeClaim" in volumes[mounts[str(keys.parent)]["name"]]

    # The files of a Secret are links to a folder that is replaced as a whole.
    assert create_root(tmp_path / "made")
    mounted, data = tmp_path / "mounted", tmp_path / "mounted" / "..data"
    data.mkdir(parents=True)
    (data / "default.json").write_bytes((tmp_path / "made" / "default.json").read_bytes())
    (data / "default.json").chmod(0o440)
    (mounted / "default.json").symlink_to("..data/default.json")
    store = DirectoryKeyStore(tmp_path / "keystore", Roots(mounted))
    keyring = store.get("acme")
    stored = store.stored("acme")
    assert stored is not None
    assert stored.root == "default"
    assert DirectoryKeyStore(tmp_path / "keystore", Roots(mounted)).get("acme") == keyring


def test_review2_p9_a_driver_mounts_root_keys_in_the_place_of_a_secret() -> None:
    csi = {"driver": "secrets-store.csi.k8s.io", "readOnly": True}
    objects = tuple(objects_of(rendered({"storage": {"roots": {"csi": csi}}})))
    mounted = [
        {**volume, "name": item["metadata"]["name"]}
        for item, pod in workloads(objects)
        for volume in pod["spec"]["volumes"]
        if volume["name"] == "roots"
    ]
    assert {each["name"] for each in mounted} == {
        f"tunery-{name}" for name in CONTROL_PLANE if name != EXPORTER and opens_keys(name)
    }
    assert [each.get("csi") for each in mounted] == [csi] * len(mounted)
    assert "tunery-roots" not in str(objects)


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
        ({"nodes": {"backend": "daemonset"}}, "agents.nodes"),
        ({"nodes": {"backend": "kubernetes"}}, "nodes.backend"),
        ({"agents": {"nodes": ["GPU 7"]}}, "agents.nodes.0"),
        ({"cluster": {"agents": []}}, "cluster.agents"),
        ({"cluster": {"agents": [{"name": "k8s"}]}}, "cluster.agents.0"),
        ({"images": {"train": {"repository": ""}}}, "images.train.repository"),
        ({"cluster": {"namespace": "tunery"}}, "cluster.namespace"),
        ({"cluster": {"priorities": {"gold": 1}}}, "gold"),
        ({"networkPolicy": {"leaseEgress": []}}, "networkPolicy.leaseEgress"),
        ({"networkPolicy": {"kubernetesEgress": []}}, "networkPolicy.kubernetesEgress"),
        ({"agents": {"folder": "data"}}, "agents.folder"),
        ({"gateway": {"ingress": {"enabled": True}}}, "gateway.ingress.host"),
        ({"gateway": {"httpRoute": {"enabled": True}}}, "gateway.httpRoute.parentRefs"),
        ({"gateway": {"autoscaling": {"replicasMax": 9}}}, "gateway.autoscaling.replicasMax"),
        ({"storage": {"bases": {"size": "large"}}}, "storage.bases.size"),
        ({"monitoring": {"interval": "often"}}, "monitoring.interval"),
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

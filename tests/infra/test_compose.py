"""The stack for Docker Compose: its processes have what they need, and its containers no rights."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import yaml
from click.testing import CliRunner

from schemas.access import KEEPS_ROWS, opens_keys
from schemas.topics import SERVICES
from tests.infra.chart import CHART
from tests.infra.containerfiles import PINNED
from tests.infra.variables import CONTROL_PLANE, INFRA, NODE, ROOT, environment, load_as, unknown_in
from tunery.cli.kafka import prepare
from tunery.cli.main import main
from tunery.local import jars, kafka
from tunery.local.paths import VERSITYGW_VERSION
from tunery.local.settings import OFFLINE
from tunery.local.stack import AGENT, AGENT_STOP_MS_MAX, EXPORTER, service_specs
from tunery.platform.bus.grants import OPERATOR
from tunery.platform.store.roles import default_roles
from tunery.runtime.bus.signing import read_keys

FOLDER: Final = INFRA / "compose"
FILE: Final = FOLDER / "compose.yaml"
LAPTOP: Final = "laptop"  # the id of its node
Service = dict[str, Any]
COMPOSE: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
EVERY: Final[dict[str, Service]] = COMPOSE["services"]
#: containers that run a module of ours, by its name
PROCESSES: Final = {
    service["command"][1].removeprefix("services."): name
    for name, service in EVERY.items()
    if service.get("command", [""])[0] == "-m"
}
#: they end when their work is done
JOBS: Final = frozenset({"topics", "roles"})
NO_PROBE: Final = JOBS | {"jaeger"}
BOOTSTRAP: Final = "TUNERY_KAFKA_BOOTSTRAP"
SECRET: Final = re.compile(r"PASSWORD|SECRET|TOKEN|DSN|AUTH|KEYS?$")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `environment` as the guide's commands make it."""
    folder = tmp_path_factory.mktemp("compose")
    secret, variables = folder / "command-secret.txt", folder / "environment"
    secret.write_text("0123456789abcdef" * 4, encoding="ascii")
    words = ["kafka", "files", str(variables), "--secret", str(secret), "--node", LAPTOP]
    assert CliRunner().invoke(main, words).exit_code == 0
    statements = CliRunner().invoke(main, ["postgres", "sql"]).output
    (variables / "roles.sql").write_text(statements, encoding="utf-8")
    add_passwords(variables)
    return variables


def add_passwords(folder: Path) -> None:
    subprocess.run(["sh", str(FOLDER / "passwords.sh"), str(folder)], check=True)


def variables_of(service: Service, files: Path) -> dict[str, str]:
    """Environment of a container's process: env files in order, then its own variables."""
    variables: dict[str, str] = {}
    for file in service.get("env_file", ()):
        text = (files.parent / file).read_text(encoding="utf-8")
        variables |= environment(text)
    own: dict[str, str] = service.get("environment", {})
    return variables | own


def bound(service: Service) -> Iterator[tuple[str, str]]:
    """Files and folders of this machine that a container sees: here, and in the container."""
    for mount in service.get("volumes", ()):
        source, target, *_ = mount.split(":")
        if source.startswith("."):
            yield source, target


# --- what runs ---------------------------------------------------------------------------------


def test_every_process_has_a_container_as_in_the_chart() -> None:
    assert PROCESSES.keys() == {*CONTROL_PLANE, AGENT}
    assert {name for process, name in PROCESSES.items() if process != AGENT} == set(CONTROL_PLANE)
    chart = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    apart = {"views"}  # of the gateway here
    assert {*PROCESSES.values()} == chart["services"].keys() - apart | {"engine", "agent"}
    idle = {name for name, service in chart["services"].items() if not service["replicas"]}
    assert {name for name, service in EVERY.items() if "profiles" in service} == idle == {EXPORTER}


def test_processes_run_in_the_image_with_their_packages_and_it_is_built_once() -> None:
    builds = {
        service["image"]: service["build"] for service in EVERY.values() if "build" in service
    }
    assert sorted(builds) == ["tunery-train:0.1.0", "tunery:0.1.0"]
    assert len([name for name, service in EVERY.items() if "build" in service]) == len(builds)
    for build in builds.values():
        assert (FOLDER / build["context"]).resolve() == ROOT
        assert (ROOT / build["dockerfile"]).is_file()
    with_torch = {name for name in PROCESSES.values() if "-train:" in EVERY[name]["image"]}
    assert with_torch == {"engine", "agent"}


def test_processes_wait_for_what_they_need_and_have_time_to_stop() -> None:
    for name, service in EVERY.items():
        for other, dependency in service.get("depends_on", {}).items():
            ended = dependency["condition"] == "service_completed_successfully"
            assert ended == (other in JOBS), f"{name} waits for {other}"
            assert ended or other not in NO_PROBE
        assert service["restart"] == ("no" if name in JOBS else "unless-stopped")
    (spec,) = service_specs(["gateway"])
    for process, name in PROCESSES.items():
        assert EVERY[name]["depends_on"].keys() == {"topics", "roles", "s3", "valkey"}
        grace_ms = 1_000 * int(EVERY[name]["stop_grace_period"].removesuffix("s"))
        assert grace_ms >= (AGENT_STOP_MS_MAX if process == AGENT else spec.stop_ms_max)


def test_gpus_are_given_to_the_agent() -> None:
    more = yaml.safe_load((FOLDER / "gpus.yaml").read_text(encoding="utf-8"))
    assert more["services"].keys() == {PROCESSES[AGENT]}


# --- what it runs with -------------------------------------------------------------------------


@pytest.mark.parametrize("process", sorted(PROCESSES))
def test_a_process_finds_what_it_needs(
    process: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = variables_of(EVERY[PROCESSES[process]], files)
    assert unknown_in("\n".join(variables)) == set()
    assert OFFLINE.items() <= variables.items()
    assert "OTEL_EXPORTER_OTLP_ENDPOINT" in variables
    settings = load_as(process, variables, monkeypatch)
    account = f"node.{LAPTOP}" if process == AGENT else process
    assert read_keys(settings.command_keys or "").sender == settings.kafka_username == account
    assert (settings.postgres_dsn is not None) == (process in KEEPS_ROWS)
    assert f"data:{settings.data_dir}" in EVERY[PROCESSES[process]]["volumes"]
    mounts = {*EVERY[PROCESSES[process]]["volumes"]}
    opens = opens_keys("trainer" if process == AGENT else process)
    assert (f"keys:{settings.keys.parent}" in mounts) == opens
    assert any(mount.startswith("keys:") for mount in mounts) == opens
    assert str(settings.metrics_host) == "0.0.0.0"  # noqa: S104  # of a container
    assert f"{PROCESSES[process]}:{settings.metrics_port}" in targets() or process == EXPORTER


def targets() -> list[str]:
    text = (FOLDER / "prometheus.yml").read_text(encoding="utf-8")
    (scraped,) = yaml.safe_load(text)["scrape_configs"]
    (static,) = scraped["static_configs"]
    listed: list[str] = static["targets"]
    assert len(listed) == len(PROCESSES) - 1, "the exporter runs where it is asked for"
    return listed


def test_no_variable_of_the_files_is_unknown() -> None:
    assert [path.name for path in FOLDER.iterdir() if path.is_file() and unknown(path)] == []


def unknown(path: Path) -> set[str]:
    # the operator's own key, of the command line
    return unknown_in(path.read_text(encoding="utf-8")) - {"TUNERY_API_KEY"}


def test_addresses_are_those_of_containers(files: Path) -> None:
    variables = variables_of(EVERY["gateway"], files)
    urls = [
        *(variables[f"TUNERY_{name}"] for name in ("S3_ENDPOINT", "VALKEY_URL", "POSTGRES_DSN")),
        f"kafka://{variables['TUNERY_KAFKA_BOOTSTRAP']}",
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"],
        EVERY["grafana"]["environment"]["GRAFANA_PROMETHEUS_URL"],
        f"postgresql://{EVERY['grafana']['environment']['GRAFANA_POSTGRES_HOST']}",
    ]
    assert {urlsplit(url).hostname for url in urls} <= EVERY.keys()
    assert EVERY["agent"]["environment"]["TUNERY_NODE_SERVE_AS"] == "agent"
    provisioning = [*(INFRA / "grafana" / "provisioning").rglob("*.yml")]
    read = {name for path in provisioning for name in named_in(path)}
    shown = variables_of(EVERY["grafana"], files)
    assert read <= shown.keys()
    roles = environment((files / "roles.env").read_text(encoding="utf-8"))["POSTGRES_ROLES"]
    assert f"tunery_reports={shown['GRAFANA_POSTGRES_PASSWORD']}" in roles.split()


def named_in(path: Path) -> list[str]:
    return re.findall(r"\$\{(\w+)\}", path.read_text(encoding="utf-8"))


def test_rights_are_prepared_for_the_node_that_runs() -> None:
    command = EVERY["topics"]["entrypoint"]
    assert command[:3] == ["tunery", "kafka", "prepare"]
    assert prepare.make_context("prepare", command[3:]).params["nodes"] == (LAPTOP,)


# --- passwords ---------------------------------------------------------------------------------


def test_servers_and_their_clients_have_the_same_passwords(files: Path) -> None:
    accounts = pairs(variables_of(EVERY["kafka"], files)["KAFKA_ACCOUNTS"])
    node = {f"node.{LAPTOP}"}
    services = {name for name in SERVICES if name != AGENT}
    assert accounts.keys() >= services | node | {OPERATOR}
    roles = pairs(variables_of(EVERY["roles"], files)["POSTGRES_ROLES"])
    assert roles.keys() == {*default_roles().values()}
    for process, name in PROCESSES.items():
        variables = variables_of(EVERY[name], files)
        assert accounts[variables["TUNERY_KAFKA_USERNAME"]] == variables["TUNERY_KAFKA_PASSWORD"]
        if process in KEEPS_ROWS:
            dsn = urlsplit(variables["TUNERY_POSTGRES_DSN"])
            assert roles[dsn.username or ""] == dsn.password
        s3 = variables_of(EVERY["s3"], files)
        assert variables["TUNERY_S3_ACCESS_KEY"] == s3["ROOT_ACCESS_KEY"]
        assert variables["TUNERY_S3_SECRET_KEY"] == s3["ROOT_SECRET_KEY"]
        valkey = variables_of(EVERY["valkey"], files)
        assert urlsplit(variables["TUNERY_VALKEY_URL"]).password == valkey["REDISCLI_AUTH"]
    owner = variables_of(EVERY["postgres"], files)
    assert owner["POSTGRES_PASSWORD"] == variables_of(EVERY["roles"], files)["PGPASSWORD"]
    every = [*accounts.values(), *roles.values(), owner["POSTGRES_PASSWORD"]]
    assert len(set(every)) == len(every)
    assert all(re.fullmatch("[0-9a-f]{48}", password) for password in every)


def pairs(text: str) -> Mapping[str, str]:
    return dict(pair.split("=", 1) for pair in text.split(" "))


def test_passwords_stay_when_they_are_made_again_and_only_their_owner_reads_them(
    files: Path,
) -> None:
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    add_passwords(files)
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before
    open_to_all = [path.name for path in files.iterdir() if path.stat().st_mode & 0o077]
    assert open_to_all == ["roles.sql"]


def test_a_node_that_is_added_gets_a_password_of_its_own(written: Path, tmp_path: Path) -> None:
    for path in written.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "roles.sql").write_text("", encoding="utf-8")
    add_passwords(tmp_path)
    accounts = pairs(environment((tmp_path / "kafka.env").read_text())["KAFKA_ACCOUNTS"])
    own = environment((tmp_path / f"node.{NODE}.env").read_text(encoding="utf-8"))
    assert accounts[f"node.{NODE}"] == own["TUNERY_KAFKA_PASSWORD"]


def test_nothing_secret_is_in_the_repository() -> None:
    for name, service in EVERY.items():
        assert [key for key in service.get("environment", {}) if SECRET.search(key)] == [], name
        assert all(file.startswith("environment/") for file in service.get("env_file", ()))
    ignored = (FOLDER / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert ignored == ["command-secret.txt", "environment/"]


# --- containers --------------------------------------------------------------------------------


def test_nothing_is_published_beyond_this_machine() -> None:
    published = {name: service["ports"] for name, service in EVERY.items() if "ports" in service}
    assert published.keys() == {"gateway", "prometheus", "grafana", "jaeger"}
    assert [port for ports in published.values() for port in ports] == [
        f"127.0.0.1:{port}:{port}" for port in (8080, 9090, 3000, 16686)
    ]
    assert [name for name, service in EVERY.items() if "network_mode" in service] == []


@pytest.mark.parametrize("name", sorted(EVERY))
def test_a_container_may_do_nothing_but_its_work(name: str) -> None:
    service = EVERY[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & service.keys()
    if name != "s3":
        assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    probed = "healthcheck" in service and "test" in service["healthcheck"]
    assert probed == (name not in NO_PROBE)
    for volume in service.get("volumes", ()):
        source = volume.split(":")[0]
        assert source.startswith(".") or source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_an_image_has_an_exact_version(name: str) -> None:
    image = EVERY[name]["image"].replace(":v", ":")
    if name not in {*PROCESSES.values(), "topics"}:
        assert image.startswith("docker.io/")
        assert PINNED.search(image) or image == "docker.io/library/postgres:18.6"


def test_servers_have_the_versions_of_those_that_the_tests_start() -> None:
    assert EVERY["s3"]["image"].endswith(f":{VERSITYGW_VERSION}")
    version = EVERY["kafka"]["image"].rpartition(":")[2]
    assert f"org.apache.kafka:kafka-server:{version} " in jars.LOCK.read_text(encoding="utf-8")


def test_files_that_containers_see_are_there(files: Path) -> None:
    sources = [source for service in EVERY.values() for source, _ in bound(service)]
    assert len(sources) > 5
    for source in sources:
        base = files.parent if source.startswith("./environment/") else FOLDER
        assert (base / source).exists(), source
    for name in ("kafka.sh", "passwords.sh"):
        subprocess.run(["bash", "-n", str(FOLDER / name)], check=True)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_a_container_is_healthy_when_its_process_is_ready(status: int, code: int) -> None:
    probes = [EVERY[name]["healthcheck"]["test"] for name in PROCESSES.values()]
    assert all(probe == probes[0] for probe in probes)
    asked: list[str] = []

    class Ready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        threading.Thread(target=server.handle_request).start()
        command = [sys.executable, *probes[0][2:]]
        variables = {"TUNERY_METRICS_PORT": str(server.server_port)}
        done = subprocess.run(command, env=variables, check=False, capture_output=True)
    assert (done.returncode, asked) == (code, ["/readyz"])


# --- Kafka -------------------------------------------------------------------------------------


def test_kafka_is_set_up_as_tunery_up_does_it_but_for_addresses(tmp_path: Path) -> None:
    written = properties(with_password(tmp_path, "of-the-broker"))
    embedded = properties(kafka.properties(Path("/data"), 9092, 9093, "of-the-broker"))
    assert written.keys() == embedded.keys()
    different = {name for name, value in written.items() if embedded[name] != value}
    assert different == {"listeners", "advertised.listeners", "log.dirs"}
    assert written["advertised.listeners"].endswith(EVERY["gateway"]["environment"][BOOTSTRAP])
    assert "CONTROLLER://127.0.0.1:" in written["listeners"], "no other machine reaches it"
    assert f"kafka:{written['log.dirs']}" in EVERY["kafka"]["volumes"]


def with_password(folder: Path, password: str) -> str:
    """The settings of the broker as its script writes them."""
    script = (FOLDER / "kafka.sh").read_text(encoding="utf-8").replace("/etc/tunery", str(FOLDER))
    (line,) = [line for line in script.splitlines() if line.startswith("sed ")]
    target = folder / "server.properties"
    variables = {"settings": str(target), "KAFKA_BROKER_PASSWORD": password}
    subprocess.run(["bash", "-euc", line], env={**os.environ, **variables}, check=True)
    return target.read_text(encoding="utf-8")


def properties(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {
        name: re.sub(r"\s+", " ", value)
        for name, _, value in (line.partition("=") for line in lines)
    }

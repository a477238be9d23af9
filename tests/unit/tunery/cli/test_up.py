"""`tunery up`: which services start, and where the key is printed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli import up
from tunery.cli.main import main
from tunery.local import lifecycle, ports, secrets
from tunery.local.paths import DataDir
from tunery.local.stack import AGENT, EXPORTER, SERVICES
from tunery.local.state import StackState

TENANT_KEY = "sk-tunery-tenant"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Services of each stack that was started in the background. Such a stack is ready at once."""
    folders, started = DataDir(tmp_path), list[tuple[str, ...]]()
    folders.create()
    ports.assign(folders.ports, lambda _: None, ports.ANY)
    secrets.load_or_create(folders.secrets)

    def detach(
        root: Path,
        services: tuple[str, ...],
        watch: Callable[[StackState], None],
        *,
        observe: bool,
        kubernetes: bool,
    ) -> None:
        assert root == tmp_path
        assert not kubernetes
        wanted = ports.with_prometheus(ports.ANY) if observe else ports.ANY
        ports.assign(folders.ports, lambda _: None, wanted)
        watch(StackState())
        started.append(services)

    monkeypatch.setattr(lifecycle, "detach", detach)
    monkeypatch.setattr(up, "tenant_key", lambda _folders, _url: TENANT_KEY)
    return started


@pytest.mark.parametrize(
    ("words", "services"),
    [
        ([], SERVICES),
        (["--no-agent"], tuple(name for name in SERVICES if name != AGENT)),
        (["--service", "gateway", "--service", "eval"], ("gateway", "eval")),
        (["--exports"], (*SERVICES, EXPORTER)),
        (["--service", "gateway", "--exports"], ("gateway", EXPORTER)),
        (["--no-services"], ()),
        (["--no-services", "--exports"], (EXPORTER,)),
        (["--service", AGENT, "--no-agent"], ()),
    ],
)
def test_options_select_the_services(
    words: list[str],
    services: tuple[str, ...],
    tmp_path: Path,
    started: list[tuple[str, ...]],
) -> None:
    done = CliRunner().invoke(main, ["up", "--detach", "--data-dir", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    assert started == [services]
    has_api = "gateway" in services
    assert ("OPENAI_BASE_URL" in done.output, "there is no HTTP API" in done.output) == (
        has_api,
        not has_api,
    )


def test_stdout_is_one_json_object(tmp_path: Path, started: list[tuple[str, ...]]) -> None:
    words = ["up", "--detach", "--json", "--data-dir", str(tmp_path)]
    answer = json.loads(CliRunner().invoke(main, words).stdout)
    folders = DataDir(tmp_path)
    url = f"http://127.0.0.1:{ports.read(folders.ports)['gateway']}"
    assert (answer["api_url"], answer["openai_base_url"]) == (url, f"{url}/v1")
    assert answer["admin_key"] == secrets.load(folders.secrets).admin_key
    assert answer["api_key"] == TENANT_KEY
    answer = json.loads(CliRunner().invoke(main, [*words, "--no-services"]).stdout)
    assert answer["api_key"] is None
    assert (answer["api_url"], answer["openai_base_url"]) == (None, None)
    assert answer["prometheus_url"] is None
    assert started == [SERVICES, ()]


@pytest.mark.parametrize("words", [[], ["--no-services"]])
def test_the_address_of_prometheus_is_printed(
    words: list[str], tmp_path: Path, started: list[object]
) -> None:
    words = ["up", "--detach", "--observe", "--data-dir", str(tmp_path), *words]
    done = CliRunner().invoke(main, words)
    url = f"http://127.0.0.1:{ports.read(DataDir(tmp_path).ports)['prometheus']}"
    assert f"Prometheus  {url}\n" in done.output
    assert json.loads(CliRunner().invoke(main, [*words, "--json"]).stdout)["prometheus_url"] == url
    assert len(started) == 2


@pytest.mark.parametrize("in_background", [False, True])
def test_a_key_is_never_written_to_a_log(
    in_background: bool, tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the background the output goes to the supervisor's log, so the key is not printed."""

    async def ready_at_once(
        _root: Path,
        _services: object,
        _print: object,
        on_ready: Callable[[object], None],
        *,
        observe: bool,
        kubernetes: bool,
    ) -> None:
        assert not observe
        assert not kubernetes
        on_ready(None)

    monkeypatch.setattr(lifecycle, "run_until_stopped", ready_at_once)
    words = ["up", "--data-dir", str(tmp_path), *(["--in-background"] if in_background else [])]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    assert (TENANT_KEY in done.output) is not in_background
    assert secrets.load(DataDir(tmp_path).secrets).admin_key not in done.output
    assert started == []


@pytest.mark.parametrize("words", [[], ["--private-webhooks"]])
def test_first_hour2_u16_a_flag_allows_webhooks_of_this_machine(
    words: list[str], tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag sets a variable, which gateway and notifier inherit."""
    monkeypatch.setenv("TUNERY_NOTIFIER_ALLOW_PRIVATE", "0")
    done = CliRunner().invoke(main, ["up", "--detach", "--data-dir", str(tmp_path), *words])
    assert done.exit_code == 0, done.output
    assert os.environ["TUNERY_NOTIFIER_ALLOW_PRIVATE"] == ("1" if words else "0")
    assert len(started) == 1


@pytest.mark.parametrize("own", [None, "false"])
def test_first_hour2_u15_a_warm_process_waits_for_the_first_job_unless_switched_off(
    own: str | None, tmp_path: Path, started: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it the first job was "queued" for 30 to 45 seconds, while Python started."""
    monkeypatch.setenv("TUNERY_NODE_WARM", own or "")
    if own is None:
        monkeypatch.delenv("TUNERY_NODE_WARM")
    done = CliRunner().invoke(main, ["up", "--detach", "--data-dir", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert os.environ["TUNERY_NODE_WARM"] == (own or "true")
    assert len(started) == 1

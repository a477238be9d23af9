"""The agent that `tunery up --kubernetes` starts can read its settings."""

from pathlib import Path

import pytest

from services.cluster.settings import ClusterSettings
from tunery.local.kubernetes import laptop
from tunery.platform.settings import load


def test_settings_of_the_agent_name_the_queue_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    variables = laptop.agent_environment(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    settings = load(ClusterSettings)
    assert list(settings.flavors) == [laptop.FLAVOR]
    assert (settings.queue, settings.namespace) == (laptop.QUEUE, laptop.NAMESPACE)
    assert settings.listen_host == settings.pod_host == "127.0.0.1"

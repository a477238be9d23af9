"""Settings of an agent, and their effect on its pods."""

import pytest

from services.cluster.settings import ClusterSettings
from tests.unit.services.cluster.test_app import SETTINGS
from tunery.platform.settings import SettingsError, load


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("agent.tunery.svc", "https://agent.tunery.svc:8443"),
        ("10.0.0.7", "https://10.0.0.7:8443"),
        ("fd00::7", "https://[fd00::7]:8443"),
    ],
)
def test_pods_reach_an_agent_by_name_or_address(
    monkeypatch: pytest.MonkeyPatch, host: str, url: str
) -> None:
    for name, value in {**SETTINGS, "POD_HOST": host}.items():
        monkeypatch.setenv(f"TUNERY_CLUSTER_{name}", value)
    assert load(ClusterSettings).agent_url == url


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"BASES_IMAGE": "registry.example.com/bases:1"}, "TUNERY_CLUSTER_BASES_IMAGE"),
        (
            {"BASES_IMAGE": f"registry.example.com/bases@sha256:{'0' * 64}", "BASES_CLAIM": "b"},
            "unset one of them",
        ),
    ],
)
def test_bad_input_bases_of_an_image_without_digest_or_of_two_places(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], problem: str
) -> None:
    for name, value in (SETTINGS | changes).items():
        monkeypatch.setenv(f"TUNERY_CLUSTER_{name}", value)
    with pytest.raises(SettingsError, match=problem):
        load(ClusterSettings)

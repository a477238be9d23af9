"""The program of a pod: sees its own devices, and ends with its lease."""

import asyncio
from pathlib import Path

import pytest

from services.cluster.pod import attempt
from tests.unit.services.cluster.adapters.test_pod_server import serving
from tests.unit.services.trainer.domain.test_evolve import grant


def test_devices_are_numbered_as_the_pod_sees_them() -> None:
    whole = grant(8)
    assert attempt.as_seen_here(whole).member.devices == tuple(range(8))
    assert attempt.as_seen_here(whole).token == whole.token


async def test_a_pod_without_a_lease_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path) as pods:
        pods.context()  # writes its files
        pods.server.dismiss(pods.lease.name)
        monkeypatch.setenv("TUNERY_POD_AGENT_URL", f"https://127.0.0.1:{pods.port}")
        monkeypatch.setenv("TUNERY_POD_LINK_DIR", str(tmp_path))
        monkeypatch.setenv("TUNERY_POD_WORK_DIR", str(tmp_path))
        status = await asyncio.wait_for(attempt.run(), 120)
    assert status == attempt.EXIT_REFUSED

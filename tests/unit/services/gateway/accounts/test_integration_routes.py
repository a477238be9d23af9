"""The MLflow server of a tenant: set, shown without its credentials, removed, erased."""

from typing import Any

import pytest

from schemas.streams import PARTITIONS
from schemas.topics import ACCOUNT
from tests.unit.services.gateway.control_plane import ControlPlane

PATH = "/v1/integrations/mlflow"
URL = "https://mlflow.example.com/base"


async def test_a_server_is_set_shown_without_its_credentials_and_removed(api: ControlPlane) -> None:
    client = await api.tenant()
    assert (await client.get(PATH)).status_code == 404
    created = await client.put(PATH, json={"url": f"{URL}/", "token": "t0p-secret"})
    assert created.status_code == 200, created.text
    shown = (await client.get(PATH)).json()
    assert (shown["url"], shown["authorization"], shown["warning"]) == (URL, "Bearer …", None)
    assert "t0p-secret" not in created.text
    replaced = await client.put(PATH, json={"url": URL, "username": "ada", "password": "pw"})
    assert replaced.json()["authorization"] == "Basic …"
    assert (await client.delete(PATH)).json()["deleted"] is True
    assert (await client.get(PATH)).status_code == 404
    assert (await client.delete(PATH)).status_code == 404


async def test_no_address_and_no_credential_is_on_the_log(api: ControlPlane) -> None:
    client = await api.tenant()
    await client.put(PATH, json={"url": URL, "token": "t0p-secret"})
    content = b""
    for partition in range(PARTITIONS):
        first, end = await api.world.log.bounds(ACCOUNT.journal.name, partition)
        reader = await api.world.log.reader(ACCOUNT.journal.name, {partition: first})
        while first < end:
            for record in await reader.poll(100, 1_000):
                content += record.value
                first = record.offset + 1
        await reader.close()
    assert b"TrackingServerSet" in content
    assert b"mlflow.example.com" not in content
    assert b"t0p-secret" not in content


async def test_another_tenant_sees_nothing_of_it(api: ControlPlane) -> None:
    owner, other = await api.tenant(), await api.tenant()
    await owner.put(PATH, json={"url": URL})
    assert (await other.get(PATH)).status_code == 404


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"url": "mlflow.example.com"}, "must be like https://"),
        ({"url": "https://ada:pw@mlflow.example.com"}, "no user name"),
        ({"url": "https://mlflow.example.com?x=1"}, "without a query"),
        ({"url": "mailto:ada@example.com"}, "must be like https://"),
        ({"url": URL, "token": "a", "username": "b"}, "give a token, or a user name"),
        ({"url": URL, "password": "b"}, "needs a user name"),
        ({"url": URL, "token": "a\r\nx-other: b"}, "pattern"),
    ],
)
async def test_a_wrong_server_is_refused_by_field(
    body: dict[str, Any], words: str, api: ControlPlane
) -> None:
    client = await api.tenant()
    answer = await client.put(PATH, json=body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert "pw" not in answer.text


async def test_a_private_address_is_accepted_with_a_warning(api: ControlPlane) -> None:
    client = await api.tenant()
    shown = (await client.put(PATH, json={"url": "http://127.0.0.1:5000"})).json()
    assert "TUNERY_NOTIFIER_ALLOW_PRIVATE" in shown["warning"]

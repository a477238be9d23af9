"""URLs of files that need no API key: what they give, for how long, and to whom they do not."""

import base64
from hashlib import sha256

import msgspec
import pytest
from starlette.requests import Request

from schemas.training import BlobFile
from services.gateway.models.download_routes import URL_MS, Ticket, download_url
from tests.unit.services.gateway.control_plane import ControlPlane

CONTENT = b"weights of a tenant " * 1_000


def url_of(api: ControlPlane, tenant: str, blob: str = "weights") -> str:
    file = BlobFile(
        name="ädapter.safetensors",
        blob=f"t/{tenant}/models/m/{blob}",
        sha256=sha256(CONTENT).hexdigest(),
        bytes=len(CONTENT),
    )
    scope = {"type": "http", "scheme": "http", "path": "/", "headers": [(b"host", b"api")]}
    return download_url(api.deps, Request(scope), tenant, file)


async def test_a_url_gives_its_file_without_a_key_until_it_ends(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    await api.world.blobs.put(f"t/{tenant}/models/m/weights", CONTENT)
    url = url_of(api, tenant)
    answer = await api.api.get(url)
    assert (answer.status_code, answer.content) == (200, CONTENT)
    assert answer.headers["content-length"] == str(len(CONTENT))
    assert "%C3%A4dapter.safetensors" in answer.headers["content-disposition"]
    assert (await api.api.get(url_of(api, tenant, "gone"))).status_code == 404
    later = api.deps.clock.now_ms() + URL_MS
    monkeypatch.setattr(type(api.deps.clock), "now_ms", lambda _: later)
    ended = await api.api.get(url)
    assert (ended.status_code, ended.json()["error"]["code"]) == (403, "insufficient_permissions")


async def test_security_tickets_are_not_made_or_changed_by_others(api: ControlPlane) -> None:
    first, second = await api.tenant(), await api.tenant()
    mine, other = first.headers["x-tenant"], second.headers["x-tenant"]
    await api.world.blobs.put(f"t/{other}/models/m/weights", CONTENT)
    root, _, written = url_of(api, mine).rpartition("/")
    text, _, mac = written.partition(".")
    ticket = msgspec.json.decode(base64.urlsafe_b64decode(text), type=Ticket)
    blob = f"t/{other}/models/m/weights"
    for tenant in (mine, other, "forged-tenant"):
        file = BlobFile(name="a", blob=blob, sha256=ticket.file.sha256, bytes=20)
        forged = msgspec.json.encode(Ticket(tenant, file, ticket.until + 1_000_000))
        shown = f"{root}/{base64.urlsafe_b64encode(forged).decode()}.{mac}"
        assert (await api.api.get(shown)).status_code == 403
    for damaged in ("", "x", ".", f"{text}.", f"{text}.{mac[:-1]}", f"AAAA.{mac}", "ü.ü"):
        assert (await api.api.get(f"/v1/downloads/{damaged}")).status_code in (401, 403, 404)
    assert api.runtime.seal.path_keys("forged-tenant", blob) == (), "a stranger makes no key"


async def test_security_h4_urls_of_an_erased_tenant_give_nothing(api: ControlPlane) -> None:
    client = await api.tenant()
    tenant = client.headers["x-tenant"]
    await api.world.blobs.put(f"t/{tenant}/models/m/weights", CONTENT)
    url = url_of(api, tenant)
    api.runtime.seal.destroy(tenant)
    assert (await api.api.get(url)).status_code == 403

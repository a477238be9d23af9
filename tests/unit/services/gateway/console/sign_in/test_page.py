"""Sign-in: keys, codes, cookies, fixation, links of other sites."""

import pytest

from services.gateway.console.sessions import KeptHere
from services.gateway.console.sign_in.page import STALE
from services.gateway.console.visits import COOKIE
from tests.unit.services.gateway.console.consoles import (
    OWN_SITE,
    console_of,
    key_of,
    signed_in,
    visiting,
)
from tests.unit.services.gateway.control_plane import ControlPlane

TYPED = {"sec-fetch-site": "none"}  # into the bar of the browser, or opened by a program


async def test_a_key_signs_in_once_and_the_page_never_has_it(api: ControlPlane) -> None:
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get("/console")
        assert page.status_code == 200
        assert client.headers["x-tenant"] in page.text
        assert key_of(client) not in page.text + str(page.headers) + str(browser.cookies)
        assert page.headers["cache-control"] == "no-store"


async def test_a_wrong_key_is_refused_in_the_words_of_the_api(api: ControlPlane) -> None:
    async with visiting(console_of(api)) as browser:
        for key in ("tun-wrong", "", "tun-\n", "tün"):
            answer = await browser.post("/console/sign-in", data={"key": key}, headers=OWN_SITE)
            assert answer.status_code == 401, key
            assert "API key" in answer.text
            assert COOKIE not in browser.cookies


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(
    api: ControlPlane, scheme: str
) -> None:
    client = await api.tenant()
    async with visiting(console_of(api)) as browser:
        answer = await browser.post(
            f"{scheme}://api/console/sign-in", data={"key": key_of(client)}, headers=OWN_SITE
        )
    cookie = answer.headers["set-cookie"].lower()
    name, *parts = cookie.split("; ")
    is_secure = scheme == "https"
    path = "path=/" if is_secure else "path=/console"
    assert {"httponly", "samesite=lax", path} <= {*parts}
    assert ("secure" in parts, name.startswith("__host-")) == (is_secure, is_secure)


async def test_over_tls_another_host_of_the_domain_cannot_sign_in_a_user(api: ControlPlane) -> None:
    """Another host may set a cookie for the whole domain, but none that begins with __Host-."""
    client = await api.tenant()
    async with visiting(console_of(api)) as browser:
        browser.base_url = "https://api"
        form = {"key": key_of(client)}
        signed = await browser.post("/console/sign-in", data=form, headers=OWN_SITE)
        assert signed.status_code == 303
        assert (await browser.get("/console")).status_code == 200
        token = browser.cookies[f"__Host-{COOKIE}"]
        browser.cookies.clear()
        browser.cookies.set(COOKIE, token)
        assert (await browser.get("/console")).status_code == 303
        browser.cookies.set(f"__Host-{COOKIE}", token)
        assert (await browser.post("/console/sign-out", headers=OWN_SITE)).status_code == 303
        browser.cookies.set(f"__Host-{COOKIE}", token)
        assert (await browser.get("/console")).status_code == 303


async def test_a_session_of_an_attackers_choice_is_never_used(api: ControlPlane) -> None:
    """Fixation: the token that a browser brings is not the one that it gets."""
    client = await api.tenant()
    console = console_of(api)
    async with visiting(console) as browser:
        browser.cookies.set(COOKIE, "chosen", path="/console")
        answer = await browser.post(
            "/console/sign-in", data={"key": key_of(client)}, headers=OWN_SITE
        )
        assert "chosen" not in answer.headers["set-cookie"]
    async with visiting(console) as attacker:
        attacker.cookies.set(COOKIE, "chosen", path="/console")
        assert (await attacker.get("/console")).status_code == 303


async def test_signing_in_anew_ends_the_session_before(api: ControlPlane) -> None:
    client, console = await api.tenant(), console_of(api)
    async with signed_in(console, key_of(client)) as browser:
        before = browser.cookies[COOKIE]
        await browser.post("/console/sign-in", data={"key": key_of(client)}, headers=OWN_SITE)
        assert browser.cookies[COOKIE] != before
    async with visiting(console) as other:
        other.cookies.set(COOKIE, before, path="/console")
        assert (await other.get("/console")).status_code == 303


async def test_a_form_of_a_stranger_is_small_and_has_no_files(api: ControlPlane) -> None:
    large = {"key": "k" * 700_000, "next": "n" * 700_000}
    async with visiting(console_of(api)) as browser:
        path = "/console/sign-in"
        answer = await browser.post(path, data=large, headers=OWN_SITE)
        assert answer.status_code == 413
        assert "exceeds the limit" in answer.text
        upload = await browser.post(path, files={"key": ("k", b"1")}, headers=OWN_SITE)
        assert upload.status_code == 400


async def test_without_valkey_every_page_says_that_sessions_cannot_be_read(
    api: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise ConnectionError("Valkey is away")

    client, console = await api.tenant(), console_of(api)
    async with signed_in(console, key_of(client)) as browser:
        for name in ("put", "get", "take"):
            monkeypatch.setattr(KeptHere, name, away)
        code = await browser.post(
            "/console/codes", headers={"authorization": f"Bearer {key_of(client)}"}
        )
        assert code.json()["error"]["code"] == "sessions_unavailable"
        form = {"key": key_of(client)}
        answers = [
            code,
            await browser.get("/console"),
            await browser.get("/console/sign-in?code=1"),
            await browser.post("/console/sign-in", data=form, headers=OWN_SITE),
            await browser.post("/console/sign-out", headers=OWN_SITE),
        ]
    assert [answer.status_code for answer in answers] == [503] * 5


async def test_signing_out_ends_the_session_and_not_the_cookie_alone(api: ControlPlane) -> None:
    client, console = await api.tenant(), console_of(api)
    async with signed_in(console, key_of(client)) as browser:
        token = browser.cookies[COOKIE]
        await browser.post("/console/sign-out", headers=OWN_SITE)
    async with visiting(console) as thief:
        thief.cookies.set(COOKIE, token, path="/console")
        assert (await thief.get("/console")).status_code == 303


async def test_a_code_signs_in_once(api: ControlPlane) -> None:
    client, console = await api.tenant(), console_of(api)
    async with visiting(console) as browser:
        headers = {"authorization": f"Bearer {key_of(client)}"}
        path = (await browser.post("/console/codes", headers=headers)).json()["path"]
        assert key_of(client) not in path
        assert (await browser.get(path, headers=TYPED)).headers["location"] == "/console"
        assert (await browser.get("/console")).status_code == 200
    async with visiting(console) as second:
        again = await second.get(path, headers=TYPED)
        assert again.status_code == 403
        assert STALE in again.text
        refused = await second.post("/console/codes", headers={"authorization": "Bearer wrong"})
        assert refused.status_code == 401


async def test_a_link_of_another_site_does_not_sign_in(api: ControlPlane) -> None:
    """Otherwise a visitor would upload into the account of who made the link."""
    client, console = await api.tenant(), console_of(api)
    async with visiting(console) as browser:
        headers = {"authorization": f"Bearer {key_of(client)}"}
        path = (await browser.post("/console/codes", headers=headers)).json()["path"]
        answer = await browser.get(path, headers={"sec-fetch-site": "cross-site"})
        assert answer.status_code == 403
        assert COOKIE not in browser.cookies


async def test_a_visitor_is_asked_where_the_browser_does_not_say_whose_link_it_is(
    api: ControlPlane,
) -> None:
    """Over plain HTTP to another machine browsers send no `sec-fetch-site`."""
    client, console = await api.tenant(), console_of(api)
    async with visiting(console) as browser:
        headers = {"authorization": f"Bearer {key_of(client)}"}
        path = (await browser.post("/console/codes", headers=headers)).json()["path"]
        asked = await browser.get(path)
        assert f"Sign in as {client.headers['x-tenant']}?" in asked.text
        assert COOKIE not in browser.cookies
        form = {"code": path.partition("code=")[2]}
        forged = {"origin": "http://evil.example"}
        refused = await browser.post("/console/sign-in", data=form, headers=forged)
        assert refused.status_code == 403
        begun = await browser.post("/console/sign-in", data=form, headers=OWN_SITE)
        assert begun.headers["location"] == "/console"
        assert (await browser.get("/console")).status_code == 200


@pytest.mark.parametrize(
    "target", ["//evil.example", "/\\evil.example", "https://evil.example", "/consolex"]
)
async def test_signing_in_continues_at_no_other_site(api: ControlPlane, target: str) -> None:
    client = await api.tenant()
    async with visiting(console_of(api)) as browser:
        form = {"key": key_of(client), "next": target}
        answer = await browser.post("/console/sign-in", data=form, headers=OWN_SITE)
        assert answer.headers["location"] == "/console"

"""Sweeps: trials with what differs, and cancelling."""

from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready
from tests.unit.services.gateway.jobs.test_sweep_routes import SWEEPS, sweep


async def test_a_sweep_is_shown_compared_and_cancelled(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    shown = (await client.post(SWEEPS, json=sweep(file_id))).json()
    first, second, third = (trial["jobs"][0]["job_id"] for trial in shown["trials"])
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert shown["id"] in (await browser.get("/console/sweeps")).text
        page = await browser.get(f"/console/sweeps/{shown['id']}")
        assert '<th scope="col" >alpha</th>' in page.text
        assert f'/console/compare?job={first}&amp;job={second}"' in page.text
        assert f"/console/jobs/{third}" not in page.text
        path = f"/console/sweeps/{shown['id']}/cancel"
        assert (await browser.post(path, headers=OWN_SITE)).status_code == 303
    assert (await client.get(f"{SWEEPS}/{shown['id']}")).json()["status"] == "cancelled"
    other = await api.tenant()
    async with signed_in(console_of(api), key_of(other)) as browser:
        assert "No sweeps yet" in (await browser.get("/console/sweeps")).text
        assert (await browser.get(f"/console/sweeps/{shown['id']}")).status_code == 404

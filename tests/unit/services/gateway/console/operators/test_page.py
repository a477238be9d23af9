"""The operators' pages, which tenants cannot see: nodes in and out of service."""

from schemas.topics import POOL
from simulator.control_plane.samples import node
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_queue_routes import ask_pool, submitted


async def test_a_node_is_taken_out_of_service_and_back(api: ControlPlane) -> None:
    await api.runtime.sender.send(POOL, "default", "", node("console-1", "c-1", 1))
    await api.until(api.api, "/v1/nodes", lambda page: "console-1" in str(page))
    client = await api.tenant()
    async with signed_in(console_of(api), key_of(api.api)) as browser:
        page = await browser.get("/console/operators")
        assert "console-1" in page.text
        tenants = await browser.get("/console/operators/tenants")
        assert client.headers["x-tenant"] in tenants.text
        path = "/console/operators/nodes/console-1/"
        for change, status in (("cordon", "cordoned"), ("uncordon", "up")):
            answer = await browser.post(path + change, headers=OWN_SITE)
            assert answer.status_code == 303
            changed = await api.api.get("/v1/nodes/console-1")
            assert changed.json()["status"] == status
            queue = (await browser.get("/console/operators")).text
            nodes = (await api.api.get("/v1/nodes")).json()["data"]
            up = [each for each in nodes if each["status"] == "up"]
            health = f'{len(up)} <span class="quiet">of {len(nodes)}</span>'
            assert f"<dt>Nodes up</dt><dd>{health}" in queue
        assert (await browser.post(path + "forget", headers=OWN_SITE)).status_code == 404
    async with signed_in(console_of(api), key_of(client)) as browser:
        assert "Operators" not in (await browser.get("/console")).text
        for path in ("/console/operators", "/console/operators/tenants"):
            assert (await browser.get(path)).status_code == 403
        path = "/console/operators/nodes/console-1/cordon"
        assert (await browser.post(path, headers=OWN_SITE)).status_code == 403


async def test_the_planner_answers_what_if() -> None:
    async with control_plane() as plane:  # a pool in which no other test has nodes or jobs
        first, first_id = await submitted(plane)
        second, second_id = await submitted(plane)
        await plane.runtime.sender.send(POOL, "default", "", node("a", "a-1", 1))
        for client, job_id in ((first, first_id), (second, second_id)):
            await ask_pool(plane, client.headers["x-tenant"], job_id, memory_bytes=1)
        shown = await plane.until(
            plane.api, "/v1/queue", lambda each: len(each["leases"]) == len(each["waiting"]) == 1
        )
        waits, runs = shown["waiting"][0]["job_id"], shown["leases"][0]["job_id"]
        path = "/console/operators/plan"
        async with signed_in(console_of(plane), key_of(plane.api)) as browser:
            assert path in (await browser.get("/console/operators")).text
            empty = (await browser.get(path)).text
            assert "Ask the planner" in empty
            assert "What would be decided next" not in empty
            more = (await browser.get(f"{path}?like=a&nodes=1")).text
            assert f'start</span> <span class="mono">{waits}' in more
            assert "a+0.1" in more
            assert "POST /v1/queue/plan" in more
            without = (await browser.get(f"{path}?remove=a")).text
            assert runs in without
            assert "No node of the pool is up." in without
            gone = (await browser.get(f"{path}?job={runs}")).text
            assert f'start</span> <span class="mono">{waits}' in gone
            other = (await browser.get(f"{path}?job={waits}&slots=8&lane=free")).text
            assert "No node of the pool has 8 slots" in other
            for wrong in ("like=none", "like=a&nodes=many", f"job={runs}&slots=2"):
                assert "notice bad" in (await browser.get(f"{path}?{wrong}")).text
        async with signed_in(console_of(plane), key_of(first)) as browser:
            assert (await browser.get(path)).status_code == 403
        assert (await first.post("/v1/queue/plan", json={})).status_code == 403
        same = (await plane.api.get("/v1/queue")).json()
        assert [each["job_id"] for each in same["waiting"]] == [waits], "nothing is recorded"

"""Changes of a request that start a job sooner, each planned by the planner."""

from schemas.pool import RegisterNode
from simulator.control_plane.samples import node
from tests.unit.services.gateway.accounts.test_budget_routes import keeper
from tests.unit.services.gateway.console.consoles import console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane, control_plane
from tests.unit.services.gateway.jobs.test_node_routes import send
from tests.unit.services.gateway.jobs.test_queue_routes import ask_pool, submitted
from tests.unit.services.gateway.jobs.test_routes import submit


async def test_the_planner_answers_for_a_job_in_the_place_of_the_one_that_waits() -> None:
    async with control_plane() as plane:  # a pool in which no other test has nodes or jobs
        first, first_id = await submitted(plane)
        client, _, body = await keeper(plane)
        second_id = (await submit(client, body["training_file"])).json()["id"]
        await send(plane, RegisterNode(node=node("a", "a-1", 1).node))
        await ask_pool(plane, first.headers["x-tenant"], first_id, memory_bytes=1)
        await plane.until(plane.api, "/v1/queue", lambda queue: len(queue["leases"]) == 1)
        tenant = client.headers["x-tenant"]
        await ask_pool(plane, tenant, second_id, memory_bytes=1, lane="standard")
        path = f"/v1/fine_tuning/jobs/{second_id}"
        await plane.until(
            client, f"{path}/queue", lambda each: each["queue"]["code"] == "no_capacity"
        )
        job = (await client.get(path)).json()
        # as much as this one job holds: one in its place fits, one beside it would not
        budget = {"max_amount_micro": job["cost"]["amount_max_micro"]}
        assert (await client.post("/v1/budgets", json=budget)).status_code < 300
        starts = (await client.get(f"{path}/starts")).json()
        rows = {row["change"]: row for row in starts["data"]}
        assert [*rows] == ["none", "epochs", "spot", "later", "lane"]
        own = rows["none"]
        assert (own["queue"]["code"], own["queue"]["position"]) == ("no_capacity", 1)
        assert own["amount_max_micro"] == job["cost"]["amount_max_micro"]
        assert rows["epochs"]["refusals"] == rows["spot"]["refusals"] == []
        assert rows["epochs"]["amount_micro"] < own["amount_micro"]
        assert rows["epochs"]["queue"]["position"] == 1, "the job itself is not before it"
        later = rows["later"]
        assert (later["queue"]["position"], later["refusals"]) == (None, [])
        in_eight_hours = starts["at"] + 8 * 3600
        assert in_eight_hours <= later["queue"]["eta"] <= later["queue"]["eta_latest"]
        lane = rows["lane"]
        assert (lane["text"], lane["body"]) == (
            "With the plan premium, which an operator sets",
            None,
        )
        assert lane["queue"]["lane"] == "premium"
        (refusal,) = lane["refusals"]
        assert refusal["code"] == "budget_exceeded"
        assert refusal["more_micro"] == lane["amount_max_micro"] - budget["max_amount_micro"] > 0
        (listed,) = (await client.get("/v1/fine_tuning/jobs")).json()["data"]
        assert listed["id"] == second_id
        assert (await first.get(f"{path}/starts")).status_code == 404
        assert (await client.get("/v1/fine_tuning/jobs/none/starts")).status_code == 404
        await client.post(f"{path}/cancel")
        assert (await client.get(f"{path}/starts")).json()["data"] == []


async def test_the_console_shows_them(api: ControlPlane) -> None:
    client, job_id = await submitted(api)
    async with signed_in(console_of(api), key_of(client)) as browser:
        page = await browser.get(f"/console/jobs/{job_id}")
        assert f"/console/jobs/{job_id}/starts" in page.text
        part = await browser.get(f"/console/jobs/{job_id}/starts", headers={"hx-request": "true"})
        assert "<html" not in part.text
        for name in ("As it is", "With 1 of 3 epochs", "such as tonight", "With the plan premium"):
            assert name in part.text
        whole = await browser.get(f"/console/jobs/{job_id}/starts")
        assert f"GET /v1/fine_tuning/jobs/{job_id}/starts" in whole.text
        assert (await browser.get("/console/jobs/none/starts")).status_code == 404

"""`GET /v1/fine_tuning/jobs/{id}/statement`: each line with its event."""

from schemas.topics import POOL
from tests.unit.services.gateway.billing.used import PARTITION, credited, lease, sliced, use
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_a_statement_names_the_event_of_each_line_in_pages(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id)).json()["id"]
    ref = lease(client.headers["x-tenant"], job_id)
    offset = await use(api, sliced(ref, 5, 20), credited(ref, 5, 8), sliced(ref, 6, 30))
    path = f"/v1/fine_tuning/jobs/{job_id}/statement"
    first = (await client.get(path, params={"limit": 2})).json()
    rest = (await client.get(path, params={"after": first["last_id"]})).json()
    assert (first["has_more"], rest["has_more"]) == (True, False)
    lines = first["data"] + rest["data"]
    assert [
        (line["kind"], line["cause"], line["billable_gpu_ms"], line["hour_start"]) for line in lines
    ] == [
        ("usage", None, 20, 18_000),
        ("credit", "lost", -8, 18_000),
        ("usage", None, 30, 21_600),
    ]
    assert [line["event"] for line in lines] == [
        {
            "topic": POOL.journal.name,
            "partition": PARTITION,
            "incarnation": 0,
            "offset": offset + number,
        }
        for number in range(3)
    ]
    assert (await client.get(path, params={"after": "x"})).status_code == 404

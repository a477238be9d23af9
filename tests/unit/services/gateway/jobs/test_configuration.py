"""Jobs with the same configuration are known by its hash, and told of."""

from typing import Any

import pytest
from msgspec.structs import replace

from services.gateway.jobs.configuration import configuration_of, earlier_job
from services.gateway.views.tables.jobs import JOBS, JobRow
from simulator.control_plane.samples import spec
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit
from tests.unit.services.gateway.view_rows import views_over

JOB = spec()
KNOWN = configuration_of(JOB, ["a"], is_seed_drawn=True)


def row(job_id: str, **changes: Any) -> JobRow:
    return JobRow(
        id=job_id,
        tenant="t",
        sequence=1,
        command_id="c",
        configuration=KNOWN,
        created_at=1,
        spec=JOB,
        lane="free",
        wanted="run",
        **{"phase": "done", **changes},
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model_id": "ft:other"},
        {"training_file": "file-copy"},
        {"hyper": replace(JOB.hyper, seed=99)},
        {"auto": ("rank",)},
    ],
)
def test_what_does_not_change_the_result_does_not_change_the_hash(changes: dict[str, Any]) -> None:
    same = configuration_of(replace(JOB, **changes), ["a"], is_seed_drawn=True)
    assert same == KNOWN


@pytest.mark.parametrize(
    "changes",
    [
        {"hyper": replace(JOB.hyper, rank=99)},
        {"base": replace(JOB.base, sha256="9" * 64)},
        {"validation_fraction_ppm": 1},
        {"drop_max_ppm": 1},
        {"length_policy": "truncate"},
        {"reasoning": "drop"},
        {"chat_sha256": "c" * 64},
    ],
)
def test_what_changes_the_result_changes_the_hash(changes: dict[str, Any]) -> None:
    assert configuration_of(replace(JOB, **changes), ["a"], is_seed_drawn=True) != KNOWN
    assert configuration_of(JOB, ["b"], is_seed_drawn=True) != KNOWN
    assert configuration_of(JOB, ["a"], is_seed_drawn=True, measures=["chrf"]) != KNOWN
    asked = configuration_of(JOB, ["a"], is_seed_drawn=False)
    other = replace(JOB, hyper=replace(JOB.hyper, seed=99))
    assert asked not in (KNOWN, configuration_of(other, ["a"], is_seed_drawn=False))


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([row("a", outcome="succeeded"), row("b", outcome="succeeded"), row("c")], "b"),
        ([row("a", outcome="succeeded"), row("b", phase="running")], "a"),
        ([row("a", phase="queued"), row("b", phase="running"), row("c", outcome="failed")], "b"),
        ([row("a", outcome="failed"), row("b", phase="queued")], "b"),
        ([row("a", outcome="failed"), row("b", outcome="cancelled")], "b"),
        ([], None),
    ],
)
async def test_of_several_earlier_jobs_the_one_that_tells_most_is_named(
    rows: list[JobRow], named: str | None
) -> None:
    written = [JOBS.insert(replace(job, sequence=number)) for number, job in enumerate(rows)]
    table = {tuple(change.key.values()): {**change.key, **change.values} for change in written}
    views = views_over({JOBS.name: table})
    earlier = await earlier_job(views, "t", KNOWN)
    assert named == (None if earlier is None else earlier.id)
    assert await earlier_job(views, "u", KNOWN) is None


async def test_a_second_job_with_the_same_configuration_names_the_first(
    api: ControlPlane,
) -> None:
    client, file_id = await ready(api)
    first = (await submit(client, file_id, suffix="a")).json()
    assert first["duplicate_of"] is None
    second = (await submit(client, file_id, suffix="b")).json()
    named = {"id": first["id"], "status": first["status"], "fine_tuned_model": None}
    assert second["duplicate_of"] == named
    copy = await api.upload(client)  # the same bytes
    await api.validated(client, copy["id"])
    third = (await submit(client, copy["id"])).json()
    assert third["duplicate_of"]["id"] == second["id"]
    other = (await submit(client, file_id, lora={"rank": 2})).json()
    seeded = (await submit(client, file_id, seed=4)).json()
    assert (other["duplicate_of"], seeded["duplicate_of"]) == (None, None)
    plan = await client.post(
        "/v1/fine_tuning/jobs/plan",
        json={"model": "tiny-llama", "training_file": file_id, "seed": 4},
    )
    assert plan.json()["duplicate_of"]["id"] == seeded["id"]

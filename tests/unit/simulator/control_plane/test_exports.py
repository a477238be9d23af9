"""The account of exported files finds rows that are missing, twice, or of another amount."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from simulator.control_plane.control_plane_sim import ControlPlaneRun, play
from simulator.control_plane.exports import FOLDER, ExportStorage, export_violations
from simulator.control_plane.plan import SESSIONS, Size, draw
from simulator.engine.command_line import silence

SEED = 1  # months are closed, and jobs and sessions have use


@pytest.fixture(scope="module")
def run() -> Iterator[ControlPlaneRun]:
    with silence():
        plan = draw(SEED, Size())
        yield play(replace(plan, errands=(*plan.errands, SESSIONS)), Size())


def files(run: ControlPlaneRun, stream: str) -> list[str]:
    bodies = run.exporter.storage.bodies
    return [key for key in bodies if FOLDER in key and f"/{stream}-" in key]


def wrong(run: ControlPlaneRun, bodies: dict[str, bytes]) -> set[str]:
    return {text.partition(":")[0] for text in export_violations(run.context, bodies)}


def test_review2_w1_files_of_a_run_have_all_that_is_on_its_log(run: ControlPlaneRun) -> None:
    assert files(run, "pool")
    assert files(run, "account")
    assert files(run, "session")
    assert run.exporter.violations() == []


@pytest.mark.parametrize("stream", ["pool", "account", "session"])
def test_review2_w1_a_file_that_is_missing_or_there_twice_is_found(
    run: ControlPlaneRun, stream: str
) -> None:
    bodies, first = dict(run.exporter.storage.bodies), files(run, stream)[0]
    assert wrong(run, {**bodies, f"t/acme{FOLDER}copy.csv": bodies[first]}) == {"export"}
    del bodies[first]
    assert wrong(run, bodies) == {"export"}


def test_review2_w1_a_file_may_be_written_again_only_with_the_same_bytes() -> None:
    storage = ExportStorage()
    for key, body in (("t/a/x", b"1"), ("t/a/x", b"1"), ("exports/newest", b"1")):
        storage.bodies[key] = body
    storage.bodies["exports/newest"] = b"2"
    assert storage.violations == []
    storage.bodies["t/a/x"] = b"2"
    assert storage.violations == ["export: t/a/x is written again with other bytes"]

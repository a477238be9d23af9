"""Messages of the gate name what they are about."""

from schemas.gate import GateRun, GateRunEnded, VersionGated


def test_events_of_a_run_name_its_job_and_its_version() -> None:
    run = GateRun(
        model_id="ft:a",
        job_id="ftjob-2",
        base_sha256="a" * 64,
        verdict="pass",
        scores_sha256="b" * 64,
    )
    assert GateRunEnded(run=run).job_id == "ftjob-2"
    assert VersionGated(run=run, quarantined=False, stage="dev").model_id == "ft:a"

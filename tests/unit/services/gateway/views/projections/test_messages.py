"""Messages for events of a job."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from schemas.anomaly import Anomaly, AnomalyKind, AnomalyRecorded
from schemas.gate import GateComparison
from schemas.integrations import MirrorCause, MirrorReport, MirrorReported
from schemas.job import JobEnded, LookTaken, PhaseSet, VerdictRecorded, WantedSet
from schemas.pool import AttemptEnd
from schemas.reasons import Failure, failing, skipping
from schemas.sealed import Sealed
from schemas.training import EnvironmentChange, SkippedCheckpoint
from services.gateway.views.projections.messages import (
    MIRROR_CAUSES,
    SAME_FILE,
    anomaly_words,
    messages,
)
from services.gateway.views.tables.jobs import JOB_EVENTS, JobEventRow
from services.gateway.wording import FAILURES, skip_words
from tests.unit.services.gateway.jobs.job_events import (
    HELD,
    JOB,
    LOST,
    SPEC,
    SUBMITTED,
    SUMMARY,
    WHOLE_LIFE,
    placed,
    started,
)
from tests.unit.services.gateway.view_rows import folded, header, only, rows

SEALED = Sealed(key_id="k", nonce=b"n", ciphertext=b"c")
ENDED = JobEnded(
    job_id=JOB,
    outcome="failed",
    model_id=None,
    failure=None,
    trained_tokens=0,
    billable_gpu_ms=0,
    lost_gpu_ms=0,
    released_gpu_ms=0,
    created_at=0,
)


def said(event: Any) -> JobEventRow:
    """The one message of an event."""
    return only(folded("job", event), JOB_EVENTS)


def test_the_messages_come_in_the_order_that_scripts_look_for() -> None:
    texts = [row.message for row in rows(folded("job", *WHOLE_LIFE), JOB_EVENTS)]
    assert texts == [
        f"Created fine-tuning job: {JOB}",
        "Validating training file: file-1",
        texts[2],
        "Files validated, moving job to queued state",
        "Fine-tuning job started",
        "Checkpoint created at step 6",
        "Attempt 1 lost its machine; the job continues, free, from its last checkpoint",
        "Moving job to queued state (attempt 2)",
        "Fine-tuning job resumed from the checkpoint of step 6",
        "Training finished, comparing the new model with its base",
        (
            "Gate: pass; skills unclear, own task learnt; right answers 110 of 200 (base model: "
            "100); validation rows: loss 3.00 → 1.50, exact answers 0 % → 25 %"
        ),
        f"New fine-tuned model created: {SPEC.model_id}",
        "The job has successfully completed",
    ]
    assert texts[2] == "At most 0.33 GPU-hours are held for this job until it ends"


def test_checkpoints_that_could_not_be_used_are_named() -> None:
    reason = skipping("blob_corrupt")
    skipped = SkippedCheckpoint(manifest_sha256="cd" * 32, reason=reason)
    events = folded("job", SUBMITTED, HELD, placed(2), started(2, 6, (skipped,)))
    resumed, passed_over = rows(events, JOB_EVENTS)[-2:]
    assert resumed.message == "Fine-tuning job resumed from the checkpoint of step 6"
    assert f"{skipped.manifest_sha256}: {skip_words(reason)}" in passed_over.message
    assert (passed_over.level, passed_over.data) == ("warn", {"skipped": ["cd" * 32]})


def test_an_anomaly_is_a_warning_with_its_figures() -> None:
    seen = Anomaly(kind="stuck", attempt=1, window=0, measured_ppm=9_000_000, usual_ppm=1_000_000)
    row = said(AnomalyRecorded(job_id=JOB, anomaly=seen))
    assert (row.level, row.message) == ("warn", anomaly_words(seen))
    assert row.data == {
        "kind": "stuck",
        "attempt": 1,
        "window": 0,
        "measured_ppm": 9_000_000,
        "usual_ppm": 1_000_000,
    }


def test_training_m10_changes_since_the_checkpoint_are_shown() -> None:
    resumed = started(2, 6)
    changes = (
        EnvironmentChange(name="instructions", before="AVX512", now="AVX2"),
        EnvironmentChange(name="numpy", before="", now="2.4.6"),
    )
    event = replace(resumed, start=replace(resumed.start, changes=changes))
    row = rows(folded("job", SUBMITTED, HELD, placed(2), event), JOB_EVENTS)[-1]
    assert row.level == "warn"
    assert row.message.endswith("instructions was AVX512, is AVX2; numpy was unknown, is 2.4.6")


def test_a_validation_file_is_named_beside_the_training_file() -> None:
    event = replace(SUBMITTED, spec=replace(SPEC, validation_file="file-2"))
    texts = [row.message for row in rows(folded("job", event), JOB_EVENTS)]
    assert texts[-1] == "Validating training file: file-1 and validation file: file-2"


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("run", "Job resumed"),
        ("paused", "Pause requested"),
        ("cancelled", "Cancellation requested"),
    ],
)
def test_a_requested_change_is_confirmed_by_a_message(wanted: Any, text: str) -> None:
    assert said(WantedSet(job_id=JOB, wanted=wanted)).message == text


def test_a_failed_attempt_is_a_warning_with_its_cause_and_a_sealed_message() -> None:
    end: AttemptEnd = replace(LOST.end, outcome="failed", cause="diverged", detail=SEALED)
    row = said(replace(LOST, end=end))
    assert (row.level, row.message) == ("warn", "Attempt 1 failed: diverged")
    assert row.sealed == SEALED
    nameless = said(replace(LOST, end=replace(end, cause=None)))
    assert nameless.message == "Attempt 1 failed: unknown"


def test_an_attempt_that_succeeded_says_nothing_of_its_end() -> None:
    event = replace(LOST, end=replace(LOST.end, outcome="succeeded"))
    assert messages(header("job"), event) == ()


def test_a_phase_alone_is_no_message() -> None:
    assert messages(header("job"), PhaseSet(job_id=JOB, phase="running")) == ()


def test_a_blocked_model_is_a_warning() -> None:
    row = said(VerdictRecorded(job_id=JOB, summary=replace(SUMMARY, verdict="block")))
    assert row.level == "warn"
    reason = "+5.0 points on 200 general questions: no drop is shown"
    words = {"skills": "unclear", "own_task": "learnt"}
    assert row.data == {"verdict": "block", **words, "reasons": [reason]}


def test_a_failure_without_a_reason_is_an_internal_error() -> None:
    row = said(ENDED)
    assert (row.level, row.message) == ("error", "The job failed: internal_error.")
    assert (row.data, row.sealed) == ({"code": "internal_error"}, None)


def test_a_failure_keeps_the_tenants_words_sealed() -> None:
    failure = Failure(code="diverged", reason=failing("loss_diverged"), detail=SEALED)
    row = said(replace(ENDED, failure=failure))
    assert row.message == f"The job failed: diverged. {FAILURES['loss_diverged']}"
    assert row.sealed == SEALED


def test_a_cancelled_job_says_so_and_is_no_error() -> None:
    row = said(replace(ENDED, outcome="cancelled"))
    assert (row.level, row.message) == ("info", "The job was cancelled")


@pytest.mark.parametrize("other", [None, "file-2"])
def test_first_hour_21_a_validation_file_that_is_the_training_file_is_warned_of(
    other: str | None,
) -> None:
    """Such a file passed without a warning."""
    for name in (SPEC.training_file, other):
        submitted = replace(SUBMITTED, spec=replace(SPEC, validation_file=name))
        texts = [row.message for row in rows(folded("job", submitted), JOB_EVENTS)]
        assert (SAME_FILE in texts) == (name == SPEC.training_file)


def test_an_inconclusive_look_is_shown_with_its_items() -> None:
    compared = GateComparison(
        verdict="inconclusive",
        items=1_000,
        worse=30,
        better=20,
        p_ppm=100_000,
        adjusted_p_ppm=100_000,
        bound_ppm=30_000,
        drop_max_ppm=20_000,
        alpha_ppm=50_000,
        smallest_ppm=20_000,
    )
    message = said(LookTaken(job_id=JOB, look=1, comparisons=(compared,)))
    assert message.message == "Look 1 of the gate, at 1,000 items: undecided, more are asked"
    assert message.data == {"look": 1, "items": 1_000}


@pytest.mark.parametrize(
    ("report", "level", "words"),
    [
        (MirrorReport(kind="mlflow", status="written"), "info", "The figures are in MLflow: "),
        (
            MirrorReport(kind="mlflow", status="failing", cause="refused", http_status=401),
            "warn",
            "not in MLflow yet: the server refuses it (HTTP 401). It is tried again",
        ),
        (
            MirrorReport(kind="mlflow", status="gave_up", cause="no_server"),
            "warn",
            f"`tunery mlflow set URL` names one. `tunery job mirror {JOB} --mlflow URL` writes",
        ),
    ],
)
def test_how_a_run_in_mlflow_goes_is_a_message(
    report: MirrorReport, level: str, words: str
) -> None:
    row = said(MirrorReported(job_id=JOB, report=report))
    assert row.level == level
    assert words in row.message
    assert row.data is not None
    assert row.data["integration"] == "mlflow"


def test_every_cause_has_words() -> None:
    assert MIRROR_CAUSES.keys() == set(get_args(MirrorCause))


WORDS: dict[AnomalyKind, str] = {
    "loss_spike": "The loss is 0.04, far above the usual 1.5",
    "throughput_drop": "Training has slowed to 0 tokens a second from 2",
    "stuck": (
        "Nothing was heard of the attempt for 0 seconds; its longest pause before was 2 seconds"
    ),
    "slow_node": ("The node trains at 0 tokens a second; others of its type do 2 at the same work"),
    "nothing_learnt": "Nothing is learnt: the loss is 0.04, and was 1.5 at first",
    "gpu_idle": "Its devices compute in only 4% of the time",
}


@pytest.mark.parametrize("kind", get_args(AnomalyKind))
def test_each_kind_has_its_figures(kind: AnomalyKind) -> None:
    anomaly = Anomaly(kind=kind, attempt=1, window=0, measured_ppm=40_000, usual_ppm=1_500_000)
    assert anomaly_words(anomaly) == WORDS[kind]

import msgspec
from msgspec.structs import replace

from schemas.account import (
    DeliveryDue,
    DeliveryEnded,
    DeliveryReport,
    EndpointCreated,
    EndpointRotated,
    WebhookEvent,
)
from schemas.endpoints import EndpointTerms
from schemas.envelope import Reason, Rejected
from schemas.erasure import ERASURE_PARTS, JobsErased, TenantErasureBegun
from schemas.integrations import Integration, MirrorReport, MirrorReported, TrackingServerRemoved
from schemas.job import JobEnded
from schemas.sealed import Sealed
from services.notifier.project import (
    DELIVER,
    MIRROR,
    MIRRORS,
    NEWEST_STEPS,
    SECRETS,
    SERVERS,
    STEPS,
    project,
)
from tests.unit.services.gateway.jobs.job_events import SUBMITTED
from tests.unit.services.headers import header
from tests.unit.services.notifier.test_mirroring import END
from tunery.runtime.verbs import Delete, Done, Todo, Upsert

SEALED = Sealed("k", b"", b"")
HEADER = header("account", offset=7, at=1_000)
KEY = {"tenant": "acme", "id": "we_1"}


def test_a_due_delivery_is_a_row_until_it_has_ended() -> None:
    due = DeliveryDue(
        delivery_id="del_1",
        endpoint_id="we_1",
        url=SEALED,
        secret_version=1,
        event=WebhookEvent(
            event_id="evt_1",
            event_type="fine_tuning.job.succeeded",
            object_id="ftjob-1",
            created_at=1,
        ),
    )
    ended = DeliveryEnded(
        endpoint_id="we_1",
        report=DeliveryReport(delivery_id="del_1", outcome="delivered", attempts=1, status=200),
    )
    assert project(HEADER, due) == (Todo(DELIVER, "del_1", "acme", "acme", due),)
    assert project(HEADER, ended) == (Done(DELIVER, "del_1"),)


def test_the_secret_of_an_endpoint_is_a_version_and_the_end_of_the_overlap() -> None:
    created = EndpointCreated(
        terms=EndpointTerms(
            endpoint_id="we_1", name=SEALED, url=SEALED, event_types=(), secret_version=1
        )
    )
    rotated = EndpointRotated(endpoint_id="we_1", secret_version=2, previous_until=5_000)
    assert project(HEADER, created) == (
        Upsert(SECRETS, KEY, {"version": 1, "previous_until": None}),
    )
    assert project(HEADER, rotated) == (
        Upsert(SECRETS, KEY, {"version": 2, "previous_until": 5_000}),
    )


def test_other_events_change_no_row() -> None:
    assert project(HEADER, Rejected(code="x", reason=Reason(code="y"))) == ()


def test_a_job_for_mlflow_has_a_row_until_its_run_has_ended() -> None:
    asked = Integration(kind="mlflow", settings=SEALED)
    submitted = replace(SUBMITTED, spec=replace(SUBMITTED.spec, integrations=(asked,)))
    job = {"tenant": "acme", "job_id": "ftjob-1"}
    begun = header("job", at=1_000)
    assert project(begun, SUBMITTED) == ()
    assert project(begun, submitted) == (
        Upsert(MIRRORS, job, {"created_at": 1_000}),
        Todo(MIRROR, "acme/ftjob-1", "acme", "acme", submitted),
    )
    (ended,) = project(header("job", at=9_000), END)
    assert isinstance(ended, Upsert)
    assert ended.values["ended_at"] == 9_000
    assert msgspec.convert(ended.values["ended"], JobEnded) == END
    assert project(begun, replace(END, integrations=("tensorboard",))) == ()
    for status in ("written", "gave_up"):
        report = MirrorReport(kind="mlflow", status=status)
        done, *deleted = project(begun, MirrorReported(job_id="ftjob-1", report=report))
        assert done == Done(MIRROR, "acme/ftjob-1")
        assert deleted == [Delete(table, job) for table in (MIRRORS, STEPS, NEWEST_STEPS)]


def test_what_is_kept_of_an_erased_tenant_goes_with_it() -> None:
    erased = project(header("job"), JobsErased())
    assert erased == tuple(
        Delete(table, {"tenant": "acme"}) for table in (MIRRORS, STEPS, NEWEST_STEPS)
    )
    begun = TenantErasureBegun(begins=ERASURE_PARTS[0])
    assert project(HEADER, begun) == (Delete(SERVERS, {"tenant": "acme"}),)
    assert project(HEADER, TrackingServerRemoved()) == (Delete(SERVERS, {"tenant": "acme"}),)

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
from schemas.sealed import Sealed
from services.notifier.project import DELIVER, SECRETS, project
from tests.unit.services.headers import header
from tunery.runtime.verbs import Done, Todo, Upsert

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

import json

from msgspec.structs import replace

from schemas.account import DeliveryDue, WebhookEvent
from schemas.admission import BudgetAlert
from schemas.anomaly import Anomaly
from schemas.billing import HourlyUse
from schemas.sealed import Sealed
from schemas.session import SessionTokens
from services.notifier.domain.message import body

DUE = DeliveryDue(
    delivery_id="del_1",
    endpoint_id="we_1",
    url=Sealed("k", b"", b""),
    secret_version=1,
    event=WebhookEvent(
        event_id="evt_1",
        event_type="fine_tuning.job.succeeded",
        object_id="ftjob-1",
        created_at=1_795_000_000_999,
    ),
)


def test_a_webhook_has_the_shape_of_openai_and_no_data_of_the_object() -> None:
    assert json.loads(body(DUE)) == {
        "id": "evt_1",
        "object": "event",
        "created_at": 1_795_000_000,
        "type": "fine_tuning.job.succeeded",
        "data": {"id": "ftjob-1"},
    }


def test_an_alert_of_a_budget_names_its_month_and_percent() -> None:
    alert = BudgetAlert(budget_id="tenant", month="2026-11", percent=80)
    event = replace(
        DUE.event, event_type="budget.threshold_reached", object_id="tenant", alert=alert
    )
    sent = json.loads(body(replace(DUE, event=event)))
    assert sent["data"] == {"id": "tenant", "month": "2026-11", "percent": 80}


def test_use_names_its_hour_and_what_was_used_or_given_back() -> None:
    usage = HourlyUse(hour_utc=498_611, kind="credit", gpu_ms=-1_500)
    event = replace(DUE.event, event_type="usage.recorded", usage=usage)
    sent = json.loads(body(replace(DUE, event=event)))
    assert sent["data"] == {
        "id": "ftjob-1",
        "hour_start": 1_794_999_600,
        "kind": "credit",
        "gpu_ms": -1_500,
    }


def test_tokens_of_a_session_are_named_by_kind() -> None:
    tokens = SessionTokens(train_tokens=100, prefill_tokens=25, sample_tokens=7)
    usage = HourlyUse(hour_utc=498_611, kind="usage", gpu_ms=0, session=tokens)
    event = replace(DUE.event, event_type="usage.recorded", usage=usage)
    sent = json.loads(body(replace(DUE, event=event)))
    assert sent["data"] == {
        "id": "ftjob-1",
        "hour_start": 1_794_999_600,
        "kind": "usage",
        "gpu_ms": 0,
        "train_tokens": 100,
        "prefill_tokens": 25,
        "sample_tokens": 7,
    }


def test_an_anomaly_has_its_kind_attempt_window_and_figures() -> None:
    seen = Anomaly(kind="stuck", attempt=2, window=1_795_000_000_999, measured_ppm=9, usual_ppm=1)
    event = replace(DUE.event, event_type="fine_tuning.job.anomaly", anomaly=seen)
    assert json.loads(body(replace(DUE, event=event)))["data"] == {
        "id": "ftjob-1",
        "kind": "stuck",
        "attempt": 2,
        "window_start": 1_795_000_000,
        "measured_ppm": 9,
        "usual_ppm": 1,
    }


def test_the_bytes_are_the_same_at_every_try() -> None:
    assert body(DUE) == body(DUE)

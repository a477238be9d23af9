"""Deliveries as e-mail: words, and which addresses are allowed."""

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from schemas.account import EVENT_TYPES, DeliveryDue
from schemas.admission import BudgetAlert
from schemas.anomaly import Anomaly, AnomalyKind
from schemas.billing import HourlyUse
from schemas.endpoints import CONFIRMATION_REQUESTED
from schemas.session import SessionTokens
from services.notifier.domain.mail import ANOMALIES, Mail, is_mail, mail_of, recipient_of
from services.notifier.domain.target import Forbidden
from tests.unit.services.notifier.domain.test_message import DUE

ANY = frozenset({"*"})


ADDRESS = "ops@acme.example"
CODE = "c" * 24
EVERY_TYPE = (*EVENT_TYPES, CONFIRMATION_REQUESTED)


def due_of(**fields: Any) -> DeliveryDue:
    return replace(DUE, event=replace(DUE.event, **fields))


def sent(due: DeliveryDue = DUE) -> Mail:
    return mail_of(due, "acme", ADDRESS, CODE)


@pytest.mark.parametrize(
    ("event_type", "subject", "command"),
    [
        ("fine_tuning.job.succeeded", "job ftjob-1 has succeeded", "tunery job show ftjob-1"),
        ("fine_tuning.job.failed", "job ftjob-1 has failed", "tunery job show ftjob-1"),
        ("fine_tuning.job.cancelled", "job ftjob-1 was cancelled", "tunery job show ftjob-1"),
        ("fine_tuning.job.running", "job ftjob-1 is training", "tunery job show ftjob-1"),
        ("fine_tuning.job.paused", "job ftjob-1 is to pause", "tunery job show ftjob-1"),
        ("fine_tuning.job.gated", "the gate has judged job ftjob-1", "tunery job show ftjob-1"),
        ("serving_pool.stalled", "replicas of ftjob-1 are missing", "tunery serving show ftjob-1"),
        ("sweep.waiting", "sweep ftjob-1 waits for room", "tunery sweep show ftjob-1"),
        ("usage.recorded", "job ftjob-1 was billed", "tunery job cost ftjob-1"),
        ("job.of_later", "job.of_later of ftjob-1", "tunery webhook deliveries we_1"),
    ],
)
def test_a_subject_says_what_happened_and_the_text_what_to_run(
    event_type: str, subject: str, command: str
) -> None:
    mail = sent(due_of(event_type=event_type))
    assert mail.subject == f"[Tunery] acme: {subject}"
    assert mail.text.startswith(f"{subject[0].upper()}{subject[1:]}.\n")
    assert f"Look     {command}\n" in mail.text
    assert f"tunery webhook delete {DUE.endpoint_id}" in mail.text


def test_an_alert_says_how_much_of_which_budget_and_what_to_look_at() -> None:
    alert = BudgetAlert(budget_id="key_1", month="2026-11", percent=80)
    mail = sent(due_of(event_type="budget.threshold_reached", alert=alert))
    assert mail.subject == (
        "[Tunery] acme: 80 % of the budget of API key key_1 is used or held in 2026-11"
    )
    assert "tunery budget list" in mail.text


@pytest.mark.parametrize("kind", get_args(AnomalyKind))
def test_an_anomaly_says_what_is_unusual_and_where_its_figures_are(kind: AnomalyKind) -> None:
    seen = Anomaly(kind=kind, attempt=1, window=0, measured_ppm=9, usual_ppm=1)
    mail = sent(due_of(event_type="fine_tuning.job.anomaly", anomaly=seen))
    assert mail.subject == f"[Tunery] acme: job ftjob-1: {ANOMALIES[kind]}"
    assert "tunery job events ftjob-1" in mail.text


def test_use_says_how_much_and_in_which_hour() -> None:
    usage = HourlyUse(hour_utc=498_611, kind="usage", gpu_ms=1_500)
    mail = sent(due_of(event_type="usage.recorded", usage=usage))
    assert mail.subject == (
        "[Tunery] acme: job ftjob-1 was billed "
        "for 1500 GPU-milliseconds in the hour from 2026-11-18 11:00 UTC"
    )
    given_back = replace(usage, kind="credit", gpu_ms=-1_500)
    mail = sent(due_of(event_type="usage.recorded", usage=given_back))
    assert "job ftjob-1 was credited for 1500 GPU-milliseconds" in mail.subject


def test_tokens_of_a_session_are_metered_and_not_billed() -> None:
    tokens = SessionTokens(train_tokens=100, prefill_tokens=25, sample_tokens=7)
    usage = HourlyUse(hour_utc=498_611, kind="usage", gpu_ms=0, session=tokens)
    mail = sent(due_of(event_type="usage.recorded", usage=usage))
    assert mail.subject == (
        "[Tunery] acme: job ftjob-1 was metered, tokens: 100 trained, 25 read, 7 sampled, "
        "in the hour from 2026-11-18 11:00 UTC"
    )


def test_a_test_names_no_job() -> None:
    mail = sent(due_of(object_id="test"))
    assert mail.subject == "[Tunery] acme: a test of fine_tuning.job.succeeded"
    assert "tunery job show" not in mail.text


def test_only_the_mail_that_asks_for_it_has_the_code() -> None:
    for event_type in EVERY_TYPE:
        mail = sent(due_of(event_type=event_type))
        asks = event_type == CONFIRMATION_REQUESTED
        assert (f"tunery webhook confirm we_1 {CODE}" in mail.text) == asks
        assert (CODE in mail.text) == asks
        assert CODE not in mail.subject


def test_every_type_has_words_of_its_own_and_one_id_for_all_tries() -> None:
    spoken = [name for name in EVERY_TYPE if name in sent(due_of(event_type=name)).subject]
    assert spoken == ["budget.threshold_reached"]  # which always has its alert
    assert sent().message_id == sent().message_id == f"<{DUE.delivery_id}@tunery>"


def test_e_mail_goes_to_the_domains_that_are_allowed() -> None:
    url = "mailto:ops@Acme.example"
    assert is_mail(url)
    assert not is_mail("https://acme.example")
    assert recipient_of(url, frozenset({"acme.example"})) == "ops@Acme.example"
    assert recipient_of(url, ANY) == "ops@Acme.example"
    for domains in (frozenset({"example"}), frozenset[str]()):
        with pytest.raises(Forbidden, match="not allowed") as raised:
            recipient_of(url, domains)
        assert "cme" not in str(raised.value)


@pytest.mark.parametrize(
    "address",
    [
        *("", "ops", "@acme.example", "ops@", "a b@acme.example", "a@b.c,d@e.f"),
        *("victim%40evil.com(@acme.example", "victim@evil.com(@acme.example"),
        *("ops@acme.example%0aBcc: x@y.z", "ops@acme.example?bcc=x@y.z", f"{'a' * 255}@b.c"),
    ],
)
def test_what_is_no_single_address_is_refused(address: str) -> None:
    with pytest.raises(Forbidden, match="not an e-mail address"):
        recipient_of(f"mailto:{address}", frozenset({"*", "acme.example"}))

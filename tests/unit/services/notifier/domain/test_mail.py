"""Deliveries as e-mail: words, and which addresses are allowed."""

import pytest
from msgspec.structs import replace

from schemas.admission import BudgetAlert
from schemas.billing import HourlyUse
from services.notifier.domain.mail import is_mail, mail_of, recipient_of
from services.notifier.domain.target import Forbidden
from tests.unit.services.notifier.domain.test_message import DUE

ANY = frozenset({"*"})


def test_an_alert_says_how_much_of_which_budget_and_what_to_look_at() -> None:
    alert = BudgetAlert(budget_id="key_1", month="2026-11", percent=80)
    due = replace(DUE, event=replace(DUE.event, alert=alert))
    mail = mail_of(due, "acme", "ops@acme.example")
    assert mail.subject == (
        "[Tunery] acme: 80 % of the budget of API key key_1 is used or held in 2026-11"
    )
    assert "tunery budget list" in mail.text
    assert f"tunery webhook delete {DUE.endpoint_id}" in mail.text
    assert mail.message_id == mail_of(due, "acme", "ops@acme.example").message_id


def test_the_end_of_a_job_names_the_job() -> None:
    mail = mail_of(DUE, "acme", "ops@acme.example")
    assert mail.subject == "[Tunery] acme: fine_tuning.job.succeeded: ftjob-1"
    assert "tunery job show ftjob-1" in mail.text


def test_use_says_how_much_and_in_which_hour() -> None:
    usage = HourlyUse(hour_utc=498_611, kind="usage", gpu_ms=1_500)
    event = replace(DUE.event, event_type="usage.recorded", usage=usage)
    mail = mail_of(replace(DUE, event=event), "acme", "ops@acme.example")
    assert mail.subject == (
        "[Tunery] acme: usage.recorded: ftjob-1, "
        "1500 GPU-milliseconds in the hour from 2026-11-18 11:00 UTC"
    )


def test_e_mail_goes_to_the_domains_that_are_allowed() -> None:
    url = "mailto:ops@Acme.example"
    assert is_mail(url)
    assert not is_mail("https://acme.example")
    assert recipient_of(url, frozenset({"acme.example"})) == "ops@Acme.example"
    assert recipient_of(url, ANY) == "ops@Acme.example"
    for domains in (frozenset({"example"}), frozenset[str]()):
        with pytest.raises(Forbidden, match="not allowed"):
            recipient_of(url, domains)


@pytest.mark.parametrize(
    "address",
    [
        *("", "ops", "@acme.example", "ops@", "a b@acme.example", "a@b.c,d@e.f"),
        *("ops@acme.example%0aBcc: x@y.z", "ops@acme.example?bcc=x@y.z", f"{'a' * 255}@b.c"),
    ],
)
def test_what_is_no_single_address_is_refused(address: str) -> None:
    with pytest.raises(Forbidden, match="not an e-mail address"):
        recipient_of(f"mailto:{address}", ANY)

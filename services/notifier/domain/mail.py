"""A delivery as an e-mail: what happened, to what, and where to look."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from schemas.account import USAGE_RECORDED, DeliveryDue, WebhookEvent
from schemas.admission import BudgetAlert
from schemas.anomaly import AnomalyKind
from schemas.billing import HourlyUse
from schemas.endpoints import CONFIRMATION_REQUESTED, MAIL_SCHEME, mail_address
from schemas.units import HOUR_MS
from services.notifier.domain.target import Forbidden
from tunery.billing.sessions import session_words

#: what happened, and the command that shows more of it; `id`: of the event's object
EVENTS: Final[Mapping[str, tuple[str, str]]] = {
    "fine_tuning.job.succeeded": ("job {id} has succeeded", "tunery job show {id}"),
    "fine_tuning.job.failed": ("job {id} has failed", "tunery job show {id}"),
    "fine_tuning.job.cancelled": ("job {id} was cancelled", "tunery job show {id}"),
    "fine_tuning.job.running": ("job {id} is training", "tunery job show {id}"),
    "fine_tuning.job.paused": ("job {id} is to pause", "tunery job show {id}"),
    "fine_tuning.job.gated": ("the gate has judged job {id}", "tunery job show {id}"),
    "fine_tuning.job.anomaly": ("job {id}: {anomaly}", "tunery job events {id}"),
    "serving_pool.stalled": ("replicas of {id} are missing", "tunery serving show {id}"),
    "sweep.stopped": ("sweep {id} was stopped: its plan has changed", "tunery sweep show {id}"),
    "sweep.waiting": ("sweep {id} waits for room", "tunery sweep show {id}"),
    USAGE_RECORDED: ("job {id} was {billed}", "tunery job cost {id}"),
}
ANOMALIES: Final[Mapping[AnomalyKind, str]] = {
    "loss_spike": "its loss is far above the usual",
    "throughput_drop": "it trains at less than half of its usual speed",
    "stuck": "it has said nothing for long",
    "gpu_idle": "its devices hardly compute",
    "slow_node": "its node is slower than others of its type",
    "nothing_learnt": "its steps teach nothing",
}
TEST_OBJECT: Final = "test"  # object of the events that an endpoint is tested with
OTHERS: Final = ("{type} of {id}", "tunery webhook deliveries {endpoint}")


@dataclass(frozen=True)
class Mail:
    """One e-mail."""

    recipient: str
    subject: str
    text: str
    message_id: str  # the same at every try, so that mail servers can recognise a repeat


def is_mail(url: str) -> bool:
    """Return whether an endpoint's URL is an e-mail address (`mailto:`)."""
    return url.lower().startswith(MAIL_SCHEME)


def recipient_of(url: str, domains: frozenset[str]) -> str:
    """The address of a `mailto` URL. Raises Forbidden, without the address in its text.

    domains: those that e-mail may go to; "*": any.
    """
    address = mail_address(url)
    if address is None:
        raise Forbidden("not an e-mail address; write it like mailto:ops@example.com")
    domain = address.rpartition("@")[2].lower()
    if not domains & {"*", domain}:
        raise Forbidden("e-mail to this domain is not allowed here; ask the operator")
    return address


def mail_of(due: DeliveryDue, tenant: str, recipient: str, code: str) -> Mail:
    """The e-mail of a delivery. Like a webhook, it has ids and no data of the object.

    code: confirms the address; it is in the mail that asks for that, and in no other.
    """
    event, endpoint_id = due.event, due.endpoint_id
    if event.event_type == CONFIRMATION_REQUESTED:
        what = "confirm this address"
        lines = [
            f"The tenant {tenant} of Tunery wants to send events of its jobs and budgets to this",
            "address. If you want them, give this code to whoever asked for it, or run:",
            "",
            f"  tunery webhook confirm {endpoint_id} {code}",
            "",
            "Otherwise do nothing: the address gets no further mail.",
        ]
    else:
        what, command = _summary(event, endpoint_id)
        moment = datetime.fromtimestamp(event.created_at // 1_000, UTC)
        lines = [
            f"{what[0].upper()}{what[1:]}.",
            "",
            f"Tenant   {tenant}",
            f"Event    {event.event_id} ({event.event_type})",
            f"Time     {moment:%Y-%m-%d %H:%M:%S} UTC",
            f"Look     {command}",
            "",
            f"You get this message because the endpoint {endpoint_id} of the tenant has your",
            f"address. To stop it: tunery webhook delete {endpoint_id}",
        ]
    return Mail(
        recipient=recipient,
        subject=f"[Tunery] {tenant}: {what}",
        text="\n".join((*lines, "")),
        message_id=f"<{due.delivery_id}@tunery>",
    )


def _summary(event: WebhookEvent, endpoint_id: str) -> tuple[str, str]:
    """Return a sentence about the event, and the command that shows more of it."""
    if event.object_id == TEST_OBJECT:
        return f"a test of {event.event_type}", f"tunery webhook deliveries {endpoint_id}"
    if event.alert is not None:
        return _used(event.alert), "tunery budget list"
    sentence, command = EVENTS.get(event.event_type, OTHERS)
    values = {"id": event.object_id, "type": event.event_type, "endpoint": endpoint_id}
    seen = event.anomaly
    values["anomaly"] = "something is unusual" if seen is None else ANOMALIES[seen.kind]
    values["billed"] = "credited" if event.usage and event.usage.kind == "credit" else "billed"
    if event.usage is not None and event.usage.session is not None:
        values["billed"] = "metered"  # its tokens cost nothing
    what = sentence.format_map(values)
    if event.usage is not None:
        what += _quantity(event.usage)
    return what, command.format_map(values)


def _used(alert: BudgetAlert) -> str:
    whose = "all jobs" if alert.budget_id == "tenant" else f"API key {alert.budget_id}"
    return f"{alert.percent} % of the budget of {whose} is used or held in {alert.month}"


def _quantity(usage: HourlyUse) -> str:
    hour = datetime.fromtimestamp(usage.hour_utc * HOUR_MS // 1_000, UTC)
    if usage.session is not None:
        return f", {session_words(usage.session)}, in the hour from {hour:%Y-%m-%d %H:%M} UTC"
    tokens = f" and {abs(usage.tokens)} trained tokens" if usage.tokens else ""
    time = f"{abs(usage.gpu_ms)} GPU-milliseconds"
    return f" for {time}{tokens} in the hour from {hour:%Y-%m-%d %H:%M} UTC"

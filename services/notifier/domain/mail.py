"""A delivery as an e-mail: what happened, to what, and where to look."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote

from schemas.account import DeliveryDue
from schemas.units import HOUR_MS
from services.notifier.domain.target import Forbidden

SCHEME: Final = "mailto:"  # of an endpoint that gets e-mail
ADDRESS_CHARACTERS_MAX: Final = 254


@dataclass(frozen=True)
class Mail:
    """One e-mail.

    message_id: the same at every try, so that mail servers can recognise a repeat.
    """

    recipient: str
    subject: str
    text: str
    message_id: str


def is_mail(url: str) -> bool:
    """Whether an endpoint's URL is an e-mail address."""
    return url.lower().startswith(SCHEME)


def recipient_of(url: str, domains: frozenset[str]) -> str:
    """The address of a `mailto` URL. Raises Forbidden.

    domains: those that e-mail may go to; "*": any.
    """
    address = unquote(url[len(SCHEME) :])
    local, at, domain = address.rpartition("@")
    wrong = any(not character.isprintable() or character in " ,;<>?" for character in address)
    if not local or not at or not domain or wrong or len(address) > ADDRESS_CHARACTERS_MAX:
        raise Forbidden("not an e-mail address; write it like mailto:ops@example.com")
    if not domains & {"*", domain.lower()}:
        raise Forbidden(f"e-mail to {domain} is not allowed here; ask the operator")
    return address


def mail_of(due: DeliveryDue, tenant: str, recipient: str) -> Mail:
    """The e-mail of a delivery. Like a webhook, it has ids and no data of the object."""
    event, alert = due.event, due.event.alert
    moment = datetime.fromtimestamp(event.created_at // 1_000, UTC)
    what = f"{event.event_type}: {event.object_id}"
    if alert is not None:
        whose = "all jobs" if alert.budget_id == "tenant" else f"API key {alert.budget_id}"
        what = f"{alert.percent} % of the budget of {whose} is used or held in {alert.month}"
    if event.usage is not None:
        hour = datetime.fromtimestamp(event.usage.hour_utc * HOUR_MS // 1_000, UTC)
        what += f", {event.usage.gpu_ms} GPU-milliseconds"
        what += f" and {event.usage.tokens} trained tokens" if event.usage.tokens else ""
        what += f" in the hour from {hour:%Y-%m-%d %H:%M} UTC"
    lines = (
        f"Tenant {tenant}: {what}.",
        "",
        f"Event    {event.event_id} ({event.event_type})",
        f"Time     {moment:%Y-%m-%d %H:%M:%S} UTC",
        f"Look     {'tunery budget list' if alert else f'tunery job show {event.object_id}'}",
        "",
        f"You get this message because the endpoint {due.endpoint_id} of the tenant has your",
        f"address. To stop it: tunery webhook delete {due.endpoint_id}",
        "",
    )
    return Mail(
        recipient=recipient,
        subject=f"[Tunery] {tenant}: {what}",
        text="\n".join(lines),
        message_id=f"<{due.delivery_id}@tunery>",
    )

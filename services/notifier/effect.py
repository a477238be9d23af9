"""Delivers webhooks and e-mail. A row of the to-do list is a delivery, tried for three days."""

import logging
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, assert_never, get_args

from standardwebhooks.webhooks import Webhook

from schemas.account import DeliveryDue, DeliveryOutcome, DeliveryReport, EndDelivery
from schemas.sealed import REDACTED
from schemas.units import Ms
from services.notifier.domain.mail import is_mail, mail_of, recipient_of
from services.notifier.domain.message import body
from services.notifier.domain.schedule import RETRY_AFTER_MS_MAX, TRIES_MAX, delay_ms
from services.notifier.domain.target import Forbidden
from services.notifier.metrics import DELIVERIES_ENDED
from services.notifier.ports import Mailer, Outbound, ReceiverUnreachable
from services.notifier.project import DELIVER, SECRETS
from tunery.platform.ports import Runtime
from tunery.platform.seal.abstract import KeyDestroyed
from tunery.platform.seal.sealer import Sealer
from tunery.platform.seal.webhooks import confirmation_code, webhook_secret
from tunery.runtime.telemetry.logs import log_event
from tunery.runtime.verbs import Effect, RetryLater, Send

LOG: Final = logging.getLogger("tunery.notifier")
ROW_LEASE_MS: Final[Ms] = 60_000  # far above the time limit of one try
GONE: Final = 410
MAIL_ACCEPTED: Final = 250  # SMTP status of a message that a server has taken


@dataclass(frozen=True)
class DeliveryEnd:
    """The delivery is over, well or not."""

    outcome: DeliveryOutcome
    status: int | None  # status of the receiver's last response, when there was one
    why: str = ""  # cause of a failure


@dataclass(frozen=True)
class TryFailed:
    """This try did not arrive; another may."""

    status: int | None  # status of the receiver's response, when there was one
    why: str
    retry_after_ms: Ms = 0  # requested pause


@dataclass(frozen=True)
class MailRoute:
    """Sender of e-mail."""

    mailer: Mailer  # hands it to a server
    domains: frozenset[str]  # where it may go; "*": anywhere


def deliver(
    runtime: Runtime,
    outbound: Outbound,
    concurrency: int,
    jitter_ppm: Callable[[], int],
    mail: MailRoute | None = None,
) -> Effect[DeliveryDue]:
    """The effect of one delivery. `jitter_ppm` draws from [0, JITTER_PPM] at each retry.

    mail: None: e-mail is refused.
    """

    async def run(due: DeliveryDue, tenant: str, try_number: int = 1) -> Send:
        now_ms = runtime.clock.now_ms()
        versions = await _secret_versions(runtime, tenant, due.endpoint_id, now_ms)
        result = await try_delivery(outbound, runtime.seal, due, tenant, versions, now_ms, mail)
        match result:
            case DeliveryEnd():
                return _end(due, tenant, try_number, result)
            case TryFailed():
                if try_number >= (1 if due.once else TRIES_MAX):
                    end = DeliveryEnd("gave_up", result.status, result.why)
                    return _end(due, tenant, try_number, end)
                raise RetryLater(result.why, min(result.retry_after_ms, RETRY_AFTER_MS_MAX))
            case _:
                assert_never(result)

    def exhausted(due: DeliveryDue, tenant: str, failure: str) -> Send:
        """The last try was cut off, so nothing is known of a response to it."""
        return _end(due, tenant, TRIES_MAX, DeliveryEnd("gave_up", None, failure))

    for outcome in get_args(DeliveryOutcome):
        DELIVERIES_ENDED.labels(outcome)  # 0: so that the first is seen as growth
    return Effect(
        kind=DELIVER,
        body=DeliveryDue,
        run=run,
        exhausted=exhausted,
        row_lease_ms=ROW_LEASE_MS,
        concurrency=concurrency,
        tries_max=TRIES_MAX,
        delay_ms=lambda try_number: delay_ms(try_number, jitter_ppm()),
    )


def _end(due: DeliveryDue, tenant: str, tries: int, end: DeliveryEnd) -> Send:
    """The command that ends the delivery in `account`; its row goes when that is read back."""
    log_event(
        LOG, logging.INFO, "delivery.ended", outcome=end.outcome, status=end.status, why=end.why
    )
    DELIVERIES_ENDED.labels(end.outcome).inc()
    report = DeliveryReport(
        delivery_id=due.delivery_id, outcome=end.outcome, attempts=tries, status=end.status
    )
    return Send("account", tenant, tenant, EndDelivery(report=report))


async def _secret_versions(
    runtime: Runtime, tenant: str, endpoint_id: str, at: Ms
) -> Sequence[int]:
    """Return the versions of the endpoint's secret: the newest, and the previous one while a
    rotation overlaps.
    """
    (row,) = await runtime.store.rows(SECRETS, {"tenant": tenant, "id": endpoint_id})
    overlaps = row["previous_until"] is not None and at < row["previous_until"]
    return [row["version"], row["version"] - 1][: 1 + overlaps]


async def try_delivery(
    outbound: Outbound,
    seal: Sealer,
    due: DeliveryDue,
    tenant: str,
    versions: Sequence[int],
    at: Ms,
    mail: MailRoute | None = None,
) -> DeliveryEnd | TryFailed:
    """Send once, signed with these versions of the secret. 2xx is success, 410 Gone is the end."""
    payload = body(due)
    try:
        url = seal.open(due.url, "url")
        if url == REDACTED:
            return DeliveryEnd("refused", None, "The tenant's data was erased.")
        if is_mail(url):
            return await _send_mail(mail, seal, due, tenant, url)
        secrets = [webhook_secret(seal, tenant, due.endpoint_id, version) for version in versions]
        response = await outbound.post(url, signed_headers(due, payload, secrets, at), payload)
    except (KeyDestroyed, Forbidden) as error:
        return DeliveryEnd("refused", None, str(error))
    except ReceiverUnreachable as error:
        return TryFailed(None, str(error))
    except Exception as error:  # a row that can never be sent must end by its schedule as well
        where = "".join(traceback.format_tb(error.__traceback__))  # not its text, which may name it
        log_event(LOG, logging.ERROR, "delivery.failed", why=type(error).__name__, where=where)
        return TryFailed(None, type(error).__name__)
    if 200 <= response.status < 300:
        return DeliveryEnd("delivered", response.status)
    if response.status == GONE:
        return DeliveryEnd("gone", response.status, "The receiver answered 410 Gone.")
    return TryFailed(response.status, f"status {response.status}", response.retry_after_ms or 0)


async def _send_mail(
    mail: MailRoute | None, seal: Sealer, due: DeliveryDue, tenant: str, url: str
) -> DeliveryEnd:
    """Raises Forbidden, KeyDestroyed, ReceiverUnreachable."""
    if mail is None:
        raise Forbidden("e-mail is not configured here: the operator sets TUNERY_NOTIFIER_SMTP_URL")
    recipient = recipient_of(url, mail.domains)
    code = confirmation_code(seal, tenant, due.endpoint_id, recipient)
    await mail.mailer.send(mail_of(due, tenant, recipient, code))
    return DeliveryEnd("delivered", MAIL_ACCEPTED)


def signed_headers(
    due: DeliveryDue, payload: bytes, secrets: Sequence[str], at: Ms
) -> dict[str, str]:
    """Standard Webhooks. `webhook-id` is the event's: repeats and other endpoints share it.

    One signature for each secret; receivers accept a message when one of them is theirs.
    """
    seconds = at // 1000
    moment = datetime.fromtimestamp(seconds, UTC)
    signatures = [
        Webhook(secret).sign(due.event.event_id, moment, payload.decode()) for secret in secrets
    ]
    return {
        "content-type": "application/json",
        "user-agent": "tunery-webhooks/1",
        "webhook-id": due.event.event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signatures),
    }

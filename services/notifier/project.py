"""The notifier's to-do list, one row per open delivery; and the versions of signing secrets.

Secrets are looked up when a message is sent, not when it falls due: a rotation holds for what is
still open. The row of an endpoint stays when it is deleted, for deliveries that outlive it.
"""

from typing import Any, Final

from schemas.account import DeliveryDue, DeliveryEnded, EndpointCreated, EndpointRotated
from schemas.envelope import Header
from schemas.units import Ms
from tunery.runtime.verbs import Change, Done, Todo, Upsert

DELIVER: Final = "deliver"
SECRETS: Final = "secrets"
DDL: Final = """
CREATE TABLE IF NOT EXISTS secrets (
  tenant text, id text, version integer NOT NULL, previous_until bigint,
  PRIMARY KEY (tenant, id)
);
"""


def project(header: Header, event: Any) -> tuple[Change, ...]:
    """Changes of to-do rows and of secret versions that follow from an event of `account`."""
    match event:
        case DeliveryDue():
            return (Todo(DELIVER, event.delivery_id, header.key, header.tenant, event),)
        case DeliveryEnded():
            return (Done(DELIVER, event.report.delivery_id),)
        case EndpointCreated():
            terms = event.terms
            return (_secret(header, terms.endpoint_id, terms.secret_version, None),)
        case EndpointRotated():
            until = event.previous_until
            return (_secret(header, event.endpoint_id, event.secret_version, until),)
        case _:
            return ()


def _secret(header: Header, endpoint_id: str, version: int, previous_until: Ms | None) -> Upsert:
    key = {"tenant": header.tenant, "id": endpoint_id}
    return Upsert(SECRETS, key, {"version": version, "previous_until": previous_until})

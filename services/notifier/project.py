"""The notifier's to-do list: one row per delivery that has not ended."""

from typing import Any, Final

from schemas.account import DeliveryDue, DeliveryEnded
from schemas.envelope import Header
from tunery.runtime.verbs import Change, Done, Todo

DELIVER: Final = "deliver"


def project(header: Header, event: Any) -> tuple[Change, ...]:
    match event:
        case DeliveryDue():
            return (Todo(DELIVER, event.delivery_id, header.key, header.tenant, event),)
        case DeliveryEnded():
            return (Done(DELIVER, event.delivery_id),)
        case _:
            return ()

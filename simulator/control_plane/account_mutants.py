"""Rules of `account`, one broken at a time. Each must be caught by the audit."""

from typing import Any, Final

from immutables import Map
from msgspec.structs import replace

from schemas.account import Announce, RotateKey
from schemas.endpoints import ConfirmEndpoint, EndpointConfirmed
from schemas.envelope import Context
from schemas.integrations import TrackingServer, TrackingServerSet
from schemas.prepaid import PrepaidExpired, PrepaidRevoked
from services.billing.domain import decide, endpoints, erasure, evolve, prepaid, statements
from services.billing.domain.state import AccountState, PrepaidBalance
from simulator.event_core.mutants import Mutant
from tunery.billing.periods import Cut

_rotate, _announce = decide._rotate_key, endpoints._announce
_follow, _prepaid, _wrong = prepaid.follow_closing, evolve._prepaid, statements._wrong_adjustment
_credited = evolve._credit_invoice


def _any_secret(tenant: AccountState, command: RotateKey) -> Any:
    return _rotate(tenant, replace(command, secret=None))


def _anybody(*_: Any) -> bool:
    return True


def _also_unconfirmed(tenant: AccountState, command: Announce) -> Any:
    """An address gets what happens before anybody who reads its mail wants it."""
    confirmed = {
        name: replace(endpoint, unconfirmed_since=None)
        for name, endpoint in tenant.endpoints.items()
    }
    return _announce(replace(tenant, endpoints=Map(confirmed)), command)


def _any_code(_: Any, command: ConfirmEndpoint, __: Context) -> Any:
    return (EndpointConfirmed(endpoint_id=command.endpoint_id),)


def _of_any_month(balances: prepaid.Balances, currency: str, month: str) -> list[PrepaidBalance]:
    """Credits pay months that were over when they were granted."""
    return sorted(
        (
            balance
            for balance in balances.values()
            if balance.credit.currency == currency
            and balance.left_micro
            and (balance.credit.last_month is None or month <= balance.credit.last_month)
        ),
        key=prepaid._order,
    )


def _never_expired(*arguments: Any) -> Any:
    return tuple(event for event in _follow(*arguments) if not isinstance(event, PrepaidExpired))


def _never_revoked(balances: prepaid.Balances, event: Any) -> prepaid.Balances:
    return balances if isinstance(event, PrepaidRevoked) else _prepaid(balances, event)


def _known_or_not(tenant: AccountState, adjustment: Any) -> Any:
    return _wrong(replace(tenant, adjustments=Map()), adjustment)


def _not_counted(tenant: AccountState, event: Any) -> AccountState:
    """Credit notes do not lower what is left of their invoice."""
    return replace(_credited(tenant, event), issued=tenant.issued)


def _always_before(*_: Any) -> bool:
    """Count records that were written after a month was closed as billed with it."""
    return True


def _nothing_refused(*_: Any) -> tuple[()]:
    return ()


def _without_header(server: TrackingServer) -> TrackingServerSet:
    return TrackingServerSet(server=replace(server, authorization=None))


ACCOUNT_MUTANTS: Final = (
    Mutant(
        "tracking servers are sent no header",
        decide,
        "TrackingServerSet",
        _without_header,
        "tracking",
        seed=15,
    ),
    Mutant("any secret rotates a key", decide, "_rotate_key", _any_secret, "api key"),
    Mutant("any key revokes another", decide, "_may_revoke", _anybody, "api key", seed=110),
    Mutant("events to strangers", endpoints, "_announce", _also_unconfirmed, "endpoint", seed=215),
    Mutant("any code confirms an address", endpoints, "_confirm", _any_code, "endpoint", seed=215),
    Mutant("credits pay earlier months", prepaid, "_usable", _of_any_month, "prepaid", seed=1413),
    Mutant("credits never expire", prepaid, "follow_closing", _never_expired, "prepaid", seed=8),
    Mutant("revoked credits pay on", evolve, "_prepaid", _never_revoked, "prepaid"),
    Mutant(
        "an adjustment counts twice", statements, "_wrong_adjustment", _known_or_not, "adjustment"
    ),
    Mutant(
        "credit notes without end", evolve, "_credit_invoice", _not_counted, "credit note", seed=2
    ),
    Mutant("a month is closed at its end", evolve, "CLOSE_AFTER_MS", 0, "month", seed=4),
    Mutant("late use is on no bill", Cut, "is_before", _always_before, "month", seed=1823),
    Mutant(
        "files go while jobs run",
        erasure,
        "ERASURE_PARTS",
        (("jobs", "models", "files"), ("key",)),
        "erasure",
        seed=48,
    ),
    Mutant(
        "an erased tenant goes on", decide, "refuse_erased", _nothing_refused, "erasure", seed=190
    ),
)

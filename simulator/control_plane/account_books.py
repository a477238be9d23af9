"""Independent accounts of keys, endpoints, adjustments, prepaid credits and closed months.

Kept from accepted events of `account` and the commands that they decide.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from schemas import account, errors
from schemas.billing import Bill, PrepaidCredit, Statement
from schemas.endpoints import CONFIRMATION_REQUESTED, ConfirmEndpoint, EndpointConfirmed
from schemas.envelope import Rejected, Repeated, Tick
from schemas.erasure import (
    ERASURE_PARTS,
    EraseTenant,
    ErasurePartDone,
    TenantErased,
    TenantErasureBegun,
)
from schemas.integrations import (
    RemoveTrackingServer,
    SetTrackingServer,
    TrackingServerRemoved,
    TrackingServerSet,
)
from schemas.prepaid import GrantPrepaid, PrepaidExpired, PrepaidGranted, PrepaidRevoked
from schemas.units import HOUR_MS, Micro, Ms
from simulator.control_plane.quota_books import month

CENT: Final[Micro] = 10_000  # of EUR and USD alike
CLOSED_AFTER_MS: Final[Ms] = 2 * HOUR_MS


@dataclass
class Credit:
    """A prepaid credit. used, gone: of its amount; gone is what expired or was taken back."""

    credit: PrepaidCredit
    first: str
    used: Micro = 0
    gone: Micro = 0

    @property
    def left(self) -> Micro:
        return self.credit.amount_micro - self.used - self.gone

    @property
    def order(self) -> tuple[bool, str, str, str]:
        """The first to expire pays first."""
        last = self.credit.last_month
        return last is None, last or "", self.first, self.credit.reference

    def may_pay(self, name: str) -> bool:
        last = self.credit.last_month
        return self.first <= name and (last is None or name <= last)


@dataclass
class Endpoint:
    """An endpoint. confirmed: its address is, or has no need."""

    types: set[str]
    url: Any
    version: int
    code: str | None
    confirmed: bool
    previous_until: Ms | None = None


@dataclass
class AccountBook:
    """Known state of one tenant's account. `ended`: names of the months that are over."""

    keys: dict[str, list[str]] = field(default_factory=dict)  # secrets, the newest last
    scopes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    due: set[str] = field(default_factory=set)
    credits: dict[str, Credit] = field(default_factory=dict)
    adjusted: Counter[tuple[str, str]] = field(default_factory=Counter)  # month, currency
    references: set[str] = field(default_factory=set)
    ended: list[str] = field(default_factory=list)
    closed: dict[str, Statement] = field(default_factory=dict)
    credited: Counter[str] = field(default_factory=Counter)  # by invoice
    notes: int = 0
    erased_parts: list[str] | None = None
    is_erased: bool = False


class AccountBooks:
    """Entered decision by decision; `violations` is what did not hold at some prefix."""

    def __init__(self) -> None:
        self.tenants: dict[str, AccountBook] = defaultdict(AccountBook)
        self.violations: list[str] = []

    def enter(self, key: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `account`."""
        book = self.tenants[key]
        if isinstance(command, account.Announce) and not any(
            isinstance(event, Repeated) for event in events
        ):
            self._announced(book, command, events)
        for event in events:
            self._enter(key, book, command, event, at)
        if isinstance(command, account.CloseInvoice):
            self._expired(book, command, events)
        if isinstance(command, SetTrackingServer | RemoveTrackingServer):
            self._tracked(key, book, command, events)

    def _enter(self, key: str, book: AccountBook, command: Any, event: Any, at: Ms) -> None:
        match event:
            case account.KeyCreated():
                self._key_created(book, event)
            case account.KeyRotated():
                self._key_rotated(book, command, event)
            case account.KeyRevoked():
                self._key_revoked(book, command, event)
            case account.EndpointCreated() | account.EndpointChanged():
                self._endpoint(book, event)
            case account.EndpointRotated() | account.EndpointDeleted():
                self._endpoint(book, event)
            case EndpointConfirmed():
                self._confirmed(book, command, event)
            case account.DeliveryDue():
                self._delivery(book, event)
            case account.InvoiceAdjusted():
                self._adjustment(book, event, at)
            case account.CreditNoteIssued():
                self._credit_note(key, book, event)
            case PrepaidGranted():
                self._granted(book, command, event, at)
            case PrepaidExpired() | PrepaidRevoked():
                self._taken_back(book, event)
            case account.PeriodEnded():
                self._over(book, event, at)
            case account.InvoiceClosed():
                self._closed(key, book, event, at)
            case TenantErasureBegun() | ErasurePartDone() | TenantErased():
                self._erasure(key, book, command, event)
            case account.TenantSuspended() | account.TenantResumed() | account.PlanSet():
                if book.erased_parts is not None and not isinstance(command, Tick):
                    self._say("erasure", f"{key} is erased, and {event} follows from {command}")
            case Rejected():
                self._refused(book, command, event)
            case _:
                pass

    def _say(self, invariant: str, text: str) -> None:
        self.violations.append(f"{invariant}: {text}")

    def _tracked(
        self,
        key: str,
        book: AccountBook,
        command: SetTrackingServer | RemoveTrackingServer,
        events: tuple[Any, ...],
    ) -> None:
        """A tenant's server is the one that it names, with its header; an erased one has none."""
        if any(isinstance(event, Rejected | Repeated) for event in events):
            return
        due: TrackingServerSet | TrackingServerRemoved = TrackingServerRemoved()
        if isinstance(command, SetTrackingServer):
            due = TrackingServerSet(server=command.server)
        if events != (due,):
            self._say("tracking", f"{command} leads to {events}")
        if isinstance(command, SetTrackingServer) and book.erased_parts is not None:
            self._say("erasure", f"{key} is erased, and has a tracking server")

    # --- keys -------------------------------------------------------------------------------------

    def _key_created(self, book: AccountBook, event: Any) -> None:
        if event.terms.key_id in book.keys:
            self._say("api key", f"{event.terms.key_id} is created twice")
        book.keys[event.terms.key_id] = [event.terms.sha256]
        book.scopes[event.terms.key_id] = event.terms.scopes

    def _key_rotated(self, book: AccountBook, command: Any, event: Any) -> None:
        secrets = book.keys[event.key_id]
        if event.key_id in book.revoked:
            self._say("api key", f"{event.key_id} is rotated although it is revoked")
        if command.secret not in (None, secrets[-1]) or event.previous_sha256 != secrets[-1]:
            self._say("api key", f"{event.key_id} is rotated by {command.secret}, it is {secrets}")
        secrets.append(event.rotation.sha256)

    def _key_revoked(self, book: AccountBook, command: Any, event: Any) -> None:
        if event.key_id in book.revoked or event.sha256 != book.keys[event.key_id][-1]:
            self._say("api key", f"{event.key_id} is revoked again, or not with its last secret")
        if isinstance(command, account.RevokeKey) and command.secret is not None:
            asking = [name for name, held in book.keys.items() if held[-1] == command.secret]
            allowed = [
                name
                for name in asking
                if name not in book.revoked
                and (name == event.key_id or account.KEYS_SCOPE in book.scopes[name])
            ]
            if not allowed:
                self._say("api key", f"{event.key_id} is revoked by {asking}, which may not")
        book.revoked.add(event.key_id)

    # --- endpoints --------------------------------------------------------------------------------

    def _endpoint(self, book: AccountBook, event: Any) -> None:
        match event:
            case account.EndpointCreated():
                terms, asked = event.terms, event.terms.confirmation
                code = None if asked is None else asked.code_sha256
                book.endpoints[terms.endpoint_id] = Endpoint(
                    {*terms.event_types}, terms.url, terms.secret_version, code, code is None
                )
            case account.EndpointChanged():
                known, change = book.endpoints[event.endpoint_id], event.change
                known.types = {*(change.event_types or known.types)}
                if change.url is not None:
                    asked = change.confirmation
                    known.url, known.confirmed = change.url, asked is None
                    known.code = None if asked is None else asked.code_sha256
            case account.EndpointRotated():
                known = book.endpoints[event.endpoint_id]
                known.version += 1
                known.previous_until = event.previous_until
                if event.secret_version != known.version:
                    self._say("endpoint", f"{event} has not version {known.version}")
            case _:
                if book.endpoints.pop(event.endpoint_id, None) is None:
                    self._say("endpoint", f"{event.endpoint_id} is deleted, and is not there")

    def _confirmed(self, book: AccountBook, command: Any, event: Any) -> None:
        known = book.endpoints[event.endpoint_id]
        if not isinstance(command, ConfirmEndpoint) or command.code_sha256 != known.code:
            self._say("endpoint", f"{event.endpoint_id} is confirmed by another code: {command}")
        known.confirmed = True

    def _delivery(self, book: AccountBook, event: Any) -> None:
        known = book.endpoints.get(event.endpoint_id)
        mails_code = event.event.event_type == CONFIRMATION_REQUESTED
        if known is None or not (known.confirmed or mails_code):
            self._say("endpoint", f"{event.delivery_id} is due to {known}")
        elif (event.url, event.secret_version) != (known.url, known.version):
            self._say("endpoint", f"{event} goes elsewhere than to {known}")
        elif event.previous_until != known.previous_until and not mails_code:
            self._say("endpoint", f"{event} is signed as long as {known.previous_until} twice")
        if event.delivery_id in book.due:
            self._say("endpoint", f"{event.delivery_id} is due twice")
        book.due.add(event.delivery_id)

    def _announced(
        self, book: AccountBook, command: account.Announce, events: tuple[Any, ...]
    ) -> None:
        """Each endpoint that subscribes, and is confirmed, has one delivery of an event."""
        wants = {
            name
            for name, known in book.endpoints.items()
            if known.confirmed and command.event.event_type in known.types
        }
        got = sorted(event.endpoint_id for event in events)
        if got != sorted(wants):
            self._say("endpoint", f"{command.event} goes to {got}, not to {sorted(wants)}")

    # --- adjustments and credit notes -------------------------------------------------------------

    def _adjustment(self, book: AccountBook, event: Any, at: Ms) -> None:
        entry = event.adjustment
        if entry.reference in book.references:
            self._say("adjustment", f"{entry.reference} counts twice")
        if event.period in book.ended or event.period > month(at // HOUR_MS):
            self._say("adjustment", f"{entry} is of {event.period}, which is over or to come")
        book.references.add(entry.reference)
        book.adjusted[event.period, entry.currency] += entry.amount_micro

    def _credit_note(self, key: str, book: AccountBook, event: Any) -> None:
        note, closed = event.note, book.closed.get(event.period)
        bills = () if closed is None else closed.bills
        bill = next((b for b in bills if b.number == note.invoice), None)
        book.notes += 1
        book.references.add(note.adjustment.reference)
        if bill is None or bill.currency != note.adjustment.currency:
            self._say("credit note", f"{note} corrects {bill}")
            return
        book.credited[bill.number] += -note.net_micro
        taxes = sum(tax.amount_micro for tax in note.taxes)
        if note.number != f"{key}-C{book.notes:04}" or note.total_micro != note.net_micro + taxes:
            self._say("credit note", f"{note} is number {book.notes}, with taxes of {taxes}")
        if note.net_micro >= 0 or book.credited[bill.number] > bill.net_micro:
            self._say("credit note", f"{book.credited[bill.number]} is given back of {bill}")

    # --- prepaid credits --------------------------------------------------------------------------

    def _granted(self, book: AccountBook, command: Any, event: Any, at: Ms) -> None:
        reference = event.credit.reference
        if reference in book.credits:
            self._say("prepaid", f"{reference} is granted twice")
        book.credits[reference] = Credit(event.credit, event.first_month)
        now = month(at // HOUR_MS)
        if isinstance(command, GrantPrepaid) and event.first_month != now:
            self._say("prepaid", f"{event} is of {now}")

    def _taken_back(self, book: AccountBook, event: Any) -> None:
        credit = book.credits[event.reference]
        if not event.amount_micro or event.amount_micro != credit.left:
            self._say("prepaid", f"{event} takes back what is left of {credit}")
        credit.gone += event.amount_micro

    def _expired(
        self, book: AccountBook, command: account.CloseInvoice, events: tuple[Any, ...]
    ) -> None:
        """With a month that is closed, what it was the last one of has nothing left."""
        name = command.statement.period
        if not any(isinstance(event, account.InvoiceClosed) for event in events):
            return
        for credit in book.credits.values():
            last = credit.credit.last_month
            if last is not None and last <= name and credit.left:
                self._say("prepaid", f"{credit} is left over after {name}")

    def _pay(self, book: AccountBook, bill: Bill, name: str) -> None:
        """Check that prepaid credits are applied to a bill in the order in which they expire."""
        due = bill.total_micro
        if due < 0:
            if bill.prepaid or bill.carried_micro != -due:
                self._say("prepaid", f"{bill} is below zero")
            return
        usable = [
            credit
            for credit in book.credits.values()
            if credit.may_pay(name) and credit.left and credit.credit.currency == bill.currency
        ]
        expected = []
        for credit in sorted(usable, key=lambda credit: credit.order):
            amount = min(due, credit.left)
            if amount:
                due -= amount
                expected.append((credit.credit.reference, amount, credit.left - amount))
        said = [(use.reference, use.amount_micro, use.left_micro) for use in bill.prepaid]
        if said != expected:
            self._say("prepaid", f"{name} is paid by {said}, not by {expected}")
        for reference, amount, _ in said:
            book.credits[reference].used += amount

    # --- months -----------------------------------------------------------------------------------

    def _over(self, book: AccountBook, event: Any, at: Ms) -> None:
        if event.period in book.ended or [*book.closed] != book.ended:
            self._say("month", f"{event.period} ends after {book.ended}, closed: {[*book.closed]}")
        if month((at - CLOSED_AFTER_MS) // HOUR_MS) <= event.period:
            self._say("month", f"{event.period} is closed too early")
        if event.before != (book.closed[book.ended[-1]] if book.ended else None):
            self._say("month", f"{event.period} does not follow {book.ended}")
        book.ended.append(event.period)

    def _closed(self, key: str, book: AccountBook, event: Any, at: Ms) -> None:
        statement: Statement = event.statement
        name = statement.period
        if name not in book.ended or name in book.closed:
            self._say("month", f"{name} is closed, ended: {book.ended}, {[*book.closed]}")
        before = sum(len(earlier.bills) for earlier in book.closed.values())
        book.closed[name] = statement
        rates = statement.terms.taxes if statement.terms else ()
        for number, bill in enumerate(statement.bills, before + 1):
            if (bill.number, bill.issued_at) != (f"{key}-{number:04}", at):
                self._say("month", f"{bill.number} of {bill.issued_at} is number {number}")
            if bill.net_micro != CENT * round(Fraction(bill.amount_micro, CENT)):
                self._say("month", f"{bill} is rounded otherwise")
            taxes = [
                CENT * round(Fraction(bill.net_micro * rate.rate_ppm, 1_000_000 * CENT))
                for rate in rates
            ]
            stated = [tax.amount_micro for tax in bill.taxes]
            if stated != taxes or bill.total_micro != bill.net_micro + sum(taxes):
                self._say("month", f"{bill} has taxes of {taxes}")
            self._pay(book, bill, name)

    # --- erasure ----------------------------------------------------------------------------------

    def _erasure(self, key: str, book: AccountBook, command: Any, event: Any) -> None:
        steps = [set(step) for step in ERASURE_PARTS]
        match event:
            case TenantErasureBegun():
                if book.erased_parts is not None or not isinstance(command, EraseTenant):
                    self._say("erasure", f"{key} is erased twice")
                left = {*book.keys} - book.revoked, book.endpoints
                if any(left):
                    self._say("erasure", f"{key} is erased, and has {left}")
                book.erased_parts = []
            case ErasurePartDone() if book.erased_parts is not None:
                done = {*book.erased_parts}
                step = next(step for step in steps if not step <= done)
                if event.part not in step or event.part in done:
                    self._say("erasure", f"{event.part} of {key} is gone after {sorted(done)}")
                book.erased_parts.append(event.part)
            case _:
                if book.is_erased or {*(book.erased_parts or ())} != set().union(*steps):
                    self._say("erasure", f"{key} is erased after {book.erased_parts}")
                book.is_erased = True

    def _refused(self, book: AccountBook, command: Any, event: Any) -> None:
        match event.code, command:
            case errors.ILLEGAL_STATE, _ if event.reason.code == "tenant_erased":
                if book.erased_parts is None:
                    self._say("erasure", f"{command} is refused before")
            case errors.MALFORMED | errors.INTERNAL, _ if event.param is None:
                self._say("refusal", f"{type(command).__name__}: {event.reason}")
            case _:
                pass

    def violations_at_the_end(self) -> list[str]:
        """Return tenants with months that are not closed or an erasure that is not complete."""
        return [
            f"progress: {name}: {book.ended} have ended, {[*book.closed]} are closed, erased:"
            f" {book.erased_parts}"
            for name, book in self.tenants.items()
            if book.ended != [*book.closed] or (book.erased_parts is not None) != book.is_erased
        ]

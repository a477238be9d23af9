"""The exporter of a run, killed now and then, and an independent account of its files."""

import asyncio
import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias

from msgspec.structs import asdict

from schemas.account import (
    PRICES_PARTITION,
    USAGE_RECORDED,
    Announce,
    CreditNoteIssued,
    EndpointChanged,
    EndpointCreated,
    EndpointDeleted,
    InvoiceClosed,
)
from schemas.envelope import Header, Repeated
from schemas.pool import UsageCredited, UsageSliced
from schemas.session import CommandAnswered
from schemas.streams import GLOBAL
from schemas.topics import ACCOUNT, SESSION, STREAMS
from schemas.units import MICRO, Micro, hour_of
from services.exporter.domain.focus import KIND_COLUMNS
from services.exporter.host import ExportHost
from services.exporter.settings import ExporterSettings
from simulator.control_plane.bills import books_on_log, import_of, own_books
from simulator.control_plane.sim_context import SimContext
from simulator.engine.cluster import Cluster, Process
from simulator.engine.sim_log import insist
from simulator.engine.stores import Storage
from tunery.billing.currency import minor_unit_micro

KILLS: Final = 3
AWAITS: Final = (100, 600)  # of a process until it is killed
BEFORE_NUMBER: Final = 1_000  # of its processes, which have names of their own
OUTAGES: Final = 2
OUTAGE_S: Final = (0.3, 6)
STEP_S: Final = 2
STEPS_MAX: Final = 60
SETTINGS: Final = ExporterSettings(every_ms=4_000, rows_max=25)
FOLDER: Final = "/exports/focus-csv/"
#: what is counted → its column
METERS: Final = {"time": "x_GpuMilliseconds", "tokens": "x_Tokens", **KIND_COLUMNS}
#: partition and offset of its record, job, and how many GPU milliseconds or tokens
Use: TypeAlias = tuple[int, int, str, str, int]


class ExportStorage(Storage):
    """Object storage of the exporter alone, so that its outages affect no other service."""

    def __init__(self) -> None:
        super().__init__()
        self.violations: list[str] = []
        self.bodies = _Bodies(self.violations)


class _Bodies(dict[str, bytes]):
    """Objects whose files may be written again by another process, with the same bytes."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__()
        self._violations = violations

    def __setitem__(self, key: str, body: bytes) -> None:
        if key.startswith("t/") and self.get(key, body) != body:
            self._violations.append(f"export: {key} is written again with other bytes")
        super().__setitem__(key, body)


class SimExporter:
    """Two processes export the log of a run into one storage; three of them are killed.

    They start when the faults of the others are over, and so change no run up to there.
    """

    def __init__(self, context: SimContext) -> None:
        self._context, self._rng = context, context.chance("exporter")
        self.storage = ExportStorage()
        self._cluster = Cluster(context.broker, context.plan.seed, STREAMS, self._build)
        self._cluster.storage = self.storage
        self._cluster.started = BEFORE_NUMBER
        self._outages: asyncio.Task[None] | None = None

    def _build(self, process: Process) -> tuple[ExportHost]:
        if process.generation <= BEFORE_NUMBER + KILLS:
            process.port.crash_after = self._rng.randint(*AWAITS)
        return (ExportHost(process.runtime("exporter"), SETTINGS),)

    async def import_prices(self) -> None:
        """Put our price books on the log, as billing does where it is installed."""
        port, sender_as = self._context.port("exporter's operator")
        for book in own_books().values():
            await insist(
                *(port, sender_as("gateway"), ACCOUNT.name, GLOBAL, import_of(book)),
                partition=PRICES_PARTITION,
            )

    def start(self) -> None:
        self._cluster.start()
        self._outages = asyncio.create_task(self._lose_storage())

    async def _lose_storage(self) -> None:
        for _ in range(OUTAGES):
            await asyncio.sleep(self._rng.uniform(*OUTAGE_S))
            self.storage.away = True
            await asyncio.sleep(self._rng.uniform(*OUTAGE_S))
            self.storage.away = False

    async def finish(self) -> None:
        """Wait for some time until all is in a file and announced; the audit says what is not."""
        context, bodies = self._context, self.storage.bodies
        for _ in range(STEPS_MAX):
            await asyncio.sleep(STEP_S)
            if not (missing_use(context, bodies) or missing_accounts(context, bodies)) and not any(
                _wrongly_announced(context)
            ):
                return

    def end(self) -> None:
        """End all processes, and count what happened to them."""
        if self._outages is not None:
            self._outages.cancel()
        self._cluster.end()
        tally = self._context.broker.tally
        for kind, count in (
            (
                "exporter killed",
                self._cluster.started - BEFORE_NUMBER - len(self._cluster.processes),
            ),
            ("exporter met another", self.storage.existed),
        ):
            if count:
                tally.add(kind, count)

    def violations(self) -> list[str]:
        """Return what is wrong with the exported files, and the hosts that died."""
        return [
            *(f"died: {why}" for why in self._cluster.died),
            *self.storage.violations,
            *export_violations(self._context, self.storage.bodies),
        ]


# --- use ------------------------------------------------------------------------------------------


def _rows(bodies: Mapping[str, bytes]) -> Iterator[dict[str, str]]:
    for key, body in bodies.items():
        if FOLDER in key:
            yield from csv.DictReader(io.StringIO(body.decode()))


def _metered(context: SimContext) -> Iterator[tuple[Header, Any, str, int]]:
    """Use and credits on the log, each with its record, its meter, and how much it is.

    Tokens where they have a price.
    """
    books = books_on_log(context.decisions["account"])
    for decision in context.decisions["pool"]:
        for event in decision.events:
            if isinstance(event, UsageSliced):
                gpu_ms, tokens = event.billable_gpu_ms, event.tokens
            elif isinstance(event, UsageCredited):
                gpu_ms, tokens = -event.lost_gpu_ms, -event.lost_tokens
            else:
                continue
            if gpu_ms:
                yield decision.header, event, "time", gpu_ms
            if tokens and books[event.lease.price_version].token_micro_per_million:
                yield decision.header, event, "tokens", tokens


def _tokens_of_sessions(context: SimContext) -> Iterator[tuple[Header, str, int]]:
    """Tokens of each answered command on the log: its record, their kind, how many they are."""
    for decision in context.decisions.get(SESSION.name, ()):
        for event in decision.events:
            if isinstance(event, CommandAnswered):
                for kind, count in asdict(event.tokens).items():
                    if count:
                        yield decision.header, kind, count


def _used(context: SimContext) -> Counter[Use]:
    used = Counter(
        (header.partition, header.offset, event.lease.job_id, meter, count)
        for header, event, meter, count in _metered(context)
    )
    used.update(
        (header.partition, header.offset, header.key, kind, count)
        for header, kind, count in _tokens_of_sessions(context)
    )
    return used


def _exported(bodies: Mapping[str, bytes]) -> Counter[Use]:
    exported = Counter[Use]()
    for row in _rows(bodies):
        for meter, column in METERS.items():
            if row[column] and int(row[column]):
                partition, offset = int(row["x_JournalPartition"]), int(row["x_JournalOffset"])
                exported[partition, offset, row["ResourceId"], meter, int(row[column])] += 1
    return exported


def missing_use(context: SimContext, bodies: Mapping[str, bytes]) -> Counter[Use]:
    """Return the use that is on the log and in no file."""
    return _used(context) - _exported(bodies)


# --- invoices -------------------------------------------------------------------------------------


class _Sums:
    """Rows of each invoice, by tenant and number: their sum, and how many lines were rounded."""

    def __init__(self, bodies: Mapping[str, bytes]) -> None:
        self._costs: dict[tuple[str, str], Fraction] = {}
        self._rounded: dict[tuple[str, str], set[tuple[str, str]]] = {}
        for row in _rows(bodies):
            invoice = row["BillingAccountId"], row["InvoiceId"]
            cost = Fraction(Decimal(row["BilledCost"])) * MICRO
            self._costs[invoice] = self._costs.get(invoice, Fraction()) + cost
            self._rounded.setdefault(invoice, set()).add((row["ResourceId"], row["PricingUnit"]))

    def is_total(self, invoice: tuple[str, str], total: Micro, unit: Micro) -> bool:
        """True if the invoice's rows sum to `total`, which is rounded to a multiple of `unit`."""
        cost = self._costs.get(invoice, Fraction())
        near = abs(cost - total) <= len(self._rounded.get(invoice, ()))
        return near and round(cost / unit) * unit == total

    def of(self, invoice: tuple[str, str]) -> Fraction:
        return self._costs.get(invoice, Fraction())


def missing_accounts(context: SimContext, bodies: Mapping[str, bytes]) -> list[str]:
    """Say which invoices and credit notes have rows that do not add up to them."""
    sums, wrong = _Sums(bodies), list[str]()
    for decision in context.decisions["account"]:
        tenant = decision.header.key
        for event in decision.events:
            bills = event.statement.bills if isinstance(event, InvoiceClosed) else ()
            for bill in bills:
                invoice = tenant, f"{event.statement.period}-{bill.currency}"
                if not sums.is_total(invoice, bill.total_micro, minor_unit_micro(bill.currency)):
                    wrong.append(
                        f"export: rows of {invoice} sum to {float(sums.of(invoice))} micro, and "
                        f"its total is {bill.total_micro}"
                    )
            if isinstance(event, CreditNoteIssued):
                note = tenant, event.note.number
                if sums.of(note) != event.note.total_micro:
                    wrong.append(
                        f"export: rows of {note} sum to {float(sums.of(note))} micro, and its "
                        f"total is {event.note.total_micro}"
                    )
    return wrong


# --- announcements --------------------------------------------------------------------------------


def _subscribers(context: SimContext) -> set[str]:
    """Tenants with an endpoint for usage events, which do not change while the exporter runs."""
    types: dict[tuple[str, str], Any] = {}
    for decision in context.decisions["account"]:
        for event in decision.events:
            match event:
                case EndpointCreated():
                    types[decision.header.key, event.terms.endpoint_id] = event.terms.event_types
                case EndpointChanged() if event.change.event_types is not None:
                    types[decision.header.key, event.endpoint_id] = event.change.event_types
                case EndpointDeleted():
                    types.pop((decision.header.key, event.endpoint_id), None)
                case _:
                    pass
    return {tenant for (tenant, _), wanted in types.items() if USAGE_RECORDED in wanted}


def _wrongly_announced(context: SimContext) -> Iterator[str]:
    """Subscribers hear of their use once: sums by tenant, job and hour, however it was cut."""
    announced, used = Counter[Any](), Counter[Any]()
    for decision, _, command in context.commands("account"):
        is_use = isinstance(command, Announce) and command.event.usage is not None
        if is_use and not any(isinstance(event, Repeated) for event in decision.events):
            use, key = command.event.usage, (decision.header.key, command.event.object_id)
            announced[*key, use.hour_utc, "time"] += use.gpu_ms
            announced[*key, use.hour_utc, "tokens"] += use.tokens
            for kind, count in ({} if use.session is None else asdict(use.session)).items():
                announced[*key, use.hour_utc, kind] += count
    subscribed = _subscribers(context)
    for _, event, meter, count in _metered(context):
        if event.lease.tenant in subscribed:
            used[event.lease.tenant, event.lease.job_id, event.hour_utc, meter] += count
    for header, kind, count in _tokens_of_sessions(context):
        if header.tenant in subscribed:
            used[header.tenant, header.key, hour_of(header.at), kind] += count
    for key in sorted({*announced, *used}):
        if announced[key] != used[key]:
            yield f"announced use: {key} is {used[key]}, and {announced[key]} was announced"


def export_violations(context: SimContext, bodies: Mapping[str, bytes]) -> list[str]:
    """Each use is in the files once, rows of an invoice are its total, subscribers hear of all."""
    used, exported = _used(context), _exported(bodies)
    violations = [*missing_accounts(context, bodies), *_wrongly_announced(context)]
    if used != exported:
        violations.append(
            f"export: in no file {dict(used - exported)}, too often {dict(exported - used)}"
        )
    return violations

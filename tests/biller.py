"""A second biller, written from docs/reference/billing.md: no code of the project, only fractions.

Books and terms are plain JSON, as operators write them.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from itertools import zip_longest
from typing import Any

GB = 10**9
HOUR_MS = 3_600_000
MILLION = 1_000_000
MINOR = {"EUR": 10_000, "USD": 10_000, "JPY": MILLION, "KWD": 1_000}  # millionths of one unit
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Written:
    """Time and tokens of a job in one hour, below zero: given back. bills: closed before it."""

    job: str
    lane: str
    version: str
    role: str
    device: str
    accelerator: str
    spot: bool
    hour: int
    gpu_ms: int
    tokens: int
    bills: int

    @property
    def month(self) -> str:
        return f"{datetime.fromtimestamp(self.hour * 3_600, UTC):%Y-%m}"

    @property
    def use(self) -> tuple[Any, ...]:
        return (self.role, self.device, self.accelerator, self.spot)


@dataclass(frozen=True)
class Kept:
    """A file or a model that is stored from a moment on; until None: it still is."""

    size: int
    since: int
    until: int | None = None


@dataclass(frozen=True)
class Answered:
    """Tokens that came to the log in a month, while the tenant had this book."""

    month: str
    version: str
    prompt: int
    cached: int
    completion: int


@dataclass(frozen=True)
class Paid:
    """Money in advance. first, last: months whose bills it pays."""

    reference: str
    amount: int
    currency: str
    first: str
    last: str | None = None


@dataclass(frozen=True)
class Note:
    """A credit on a bill that is closed, as it was requested."""

    month: str
    currency: str
    amount: int


@dataclass(frozen=True)
class Bill:
    amount_micro: int
    net_micro: int
    taxes: tuple[int, ...]
    contract_micro: int = 0
    volume_micro: int = 0
    storage_micro: int = 0
    answers_micro: int = 0

    @property
    def total_micro(self) -> int:
        return self.net_micro + sum(self.taxes)


@dataclass(frozen=True)
class Settled:
    """Payments of a bill by credits; carried: amount of a bill below zero."""

    uses: tuple[tuple[str, int], ...] = ()
    carried: int = 0


@dataclass
class Tenant:
    """Terms and usage of a tenant, from its first month on."""

    books: dict[str, Json]
    months: list[str]
    # month → limit in GPU-milliseconds at its end
    soft: dict[str, int] = field(default_factory=dict)
    terms: dict[str, Json] = field(default_factory=dict)  # month → terms from it on
    # month and currency → their sum
    adjustments: Counter[tuple[str, str]] = field(default_factory=Counter)
    written: list[Written] = field(default_factory=list)
    held: list[tuple[int, str]] = field(default_factory=list)  # moment → book from it on, in order
    kept: dict[str, Kept] = field(default_factory=dict)
    answered: list[Answered] = field(default_factory=list)
    # credits, references of those that were revoked, and names of months that were closed
    paid: list[tuple[str, Any]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    def bills(self, name: str) -> dict[str, Bill]:
        """The bills of a closed month by currency; those on which there is nothing are left out."""
        all_of = {code: self._bill(name, code) for code in MINOR}
        return {code: bill for code, bill in all_of.items() if any(_flat(bill))}

    def settled(self) -> tuple[dict[tuple[str, str], Settled], dict[str, int]]:
        """Return payments of each closed bill by credits, and the rest of each credit."""
        left: dict[str, int] = {}
        known: dict[str, Paid] = {}
        settled: dict[tuple[str, str], Settled] = {}
        for what, value in self.paid:
            if what == "paid":
                known[value.reference], left[value.reference] = value, value.amount
            elif what == "revoked":
                left[value] = 0
            else:
                carried = []
                for code, bill in self.bills(value).items():
                    if bill.total_micro < 0:
                        settled[value, code] = Settled(carried=-bill.total_micro)
                        after = self.months[self.months.index(value) + 1]
                        name = f"carried:{value}/{code}"
                        carried.append(Paid(name, -bill.total_micro, code, after))
                    else:
                        uses = self._pay(bill.total_micro, code, value, known, left)
                        settled[value, code] = Settled(uses)
                for credit in carried:
                    known[credit.reference], left[credit.reference] = credit, credit.amount
                for name, credit in known.items():
                    if credit.last is not None and credit.last <= value:
                        left[name] = 0
        return settled, left

    def _pay(
        self, due: int, currency: str, month: str, known: dict[str, Paid], left: dict[str, int]
    ) -> tuple[tuple[str, int], ...]:
        """The first to expire first; then that of the earlier month, then by reference."""
        order = sorted(
            known.values(),
            key=lambda credit: (credit.last or "forever", credit.first, credit.reference),
        )
        uses = []
        for credit in order:
            amount = min(due, left[credit.reference])
            begun = credit.first <= month and (credit.last is None or month <= credit.last)
            if amount and begun and credit.currency == currency:
                due -= amount
                left[credit.reference] -= amount
                uses.append((credit.reference, amount))
        return tuple(uses)

    def credit_notes(self) -> list[tuple[int, tuple[int, ...]]]:
        """Net and taxes of each: all taxes of an invoice's notes are those of their sum."""
        together: Counter[tuple[str, str]] = Counter()
        notes = []
        for note in self.notes:
            key, unit = (note.month, note.currency), MINOR[note.currency]
            net = round(Fraction(note.amount, unit)) * unit
            before = self._taxes(together[key], note.month, unit)
            together[key] += net
            taxes = zip(self._taxes(together[key], note.month, unit), before, strict=True)
            notes.append((net, tuple(now - then for now, then in taxes)))
        return notes

    def _taxes(self, net: int, month: str, unit: int) -> tuple[int, ...]:
        return tuple(
            round(Fraction(net * tax["rate_ppm"], MILLION * unit)) * unit
            for tax in self._agreed(month).get("taxes", ())
        )

    def _bill(self, name: str, currency: str) -> Bill:
        number = self.months.index(name)
        on = [row for row in self.written if self._bill_of(row) == number]
        before = [row for row in self.written if self._bill_of(row) < number]
        lines = self._lines(on, before, currency)  # (month of use, lane) → amount
        volume = self._volume(on, before, currency)
        contract, own = 0, 0
        for month in {*(row.month for row in on), name}:
            off = self._discounts(month, lines, volume)
            more = self._overage(month, [*before, *on], currency)
            more -= self._overage(month, before, currency)
            contract += off + more
            if month == name:
                own = off + more + sum(_of_month(lines, name)) + sum(_of_month(volume, name))
        storage, answers = self._storage(name, currency), self._answers(name, currency)
        own += storage + answers
        least = self._agreed(name).get("commitment")
        if least and least["currency"] == currency and _within(least, name):
            contract += max(least["amount_micro"] - own, 0)
        adjusted = self.adjustments[name, currency]
        amount = sum(lines.values()) + sum(volume.values()) + contract + adjusted
        amount += storage + answers
        unit = MINOR[currency]
        net = round(Fraction(amount, unit)) * unit
        taxes = self._taxes(net, name, unit)
        return Bill(amount, net, taxes, contract, sum(volume.values()), storage, answers)

    def _storage(self, name: str, currency: str) -> int:
        """Bytes times milliseconds under each book, rounded to byte-hours, and these to money."""
        year, month = map(int, name.split("-"))
        first = int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1_000
        end = datetime(year + month // 12, month % 12 + 1, 1, tzinfo=UTC).timestamp()
        end_ms, amount, byte_ms = int(end) * 1_000, 0, Counter[str]()
        for (since, version), following in zip_longest(self.held, self.held[1:]):
            begin, until = max(first, since), min(end_ms, following[0] if following else end_ms)
            for kept in self.kept.values():
                last = until if kept.until is None else min(kept.until, until)
                byte_ms[version] += kept.size * max(last - max(kept.since, begin), 0)
        for version, size in byte_ms.items():
            book = self.books[version]
            if book["currency"] == currency:
                price = round(Fraction(size, HOUR_MS)) * book["storage_micro_per_gb_month"]
                amount += round(Fraction(price * HOUR_MS, GB * (end_ms - first)))
        return amount

    def _answers(self, name: str, currency: str) -> int:
        """Tokens of each price of a book, rounded once."""
        tokens, amount = Counter[tuple[str, str]](), 0
        for answered in self.answered:
            if answered.month == name:
                tokens[answered.version, "prompt"] += answered.prompt - answered.cached
                tokens[answered.version, "cached"] += answered.cached
                tokens[answered.version, "completion"] += answered.completion
        for (version, kind), count in tokens.items():
            book = self.books[version]
            if book["currency"] == currency and book["answers"]:
                price = book["answers"][f"{kind}_micro_per_million"]
                amount += round(Fraction(count * price, MILLION))
        return amount

    def _bill_of(self, row: Written) -> int:
        """On the bill of its month, or where that was closed before it came on the next one."""
        return max(self.months.index(row.month), row.bills)

    def _agreed(self, month: str) -> Json:
        begun = [name for name in self.terms if name <= month]
        return self.terms[max(begun)] if begun else {}

    def _lines(
        self, on: Iterable[Written], before: Iterable[Written], currency: str
    ) -> Counter[tuple[str, str]]:
        """Each job costs the sum of its time, rounded, and that of its tokens, line after line."""
        earlier: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for row in before:
            earlier[row.job][0] += row.gpu_ms * self._hourly(row)
            earlier[row.job][1] += row.tokens * self._per_million(row)
        now: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in on:
            if self.books[row.version]["currency"] == currency:
                now[row.job, row.month, row.lane][0] += row.gpu_ms * self._hourly(row)
                now[row.job, row.month, row.lane][1] += row.tokens * self._per_million(row)
        amounts = Counter[tuple[str, str]]()
        for (job, month, lane), added in sorted(now.items()):
            for at, per in ((0, HOUR_MS), (1, MILLION)):
                so_far = earlier[job][at]
                amounts[month, lane] += round(Fraction(so_far + added[at], per))
                amounts[month, lane] -= round(Fraction(so_far, per))
                earlier[job][at] += added[at]
        return amounts

    def _volume(
        self, on: Iterable[Written], before: Iterable[Written], currency: str
    ) -> Counter[tuple[str, str]]:
        """Discount of tiers on a month's quantity now, less the one given before."""
        first, then = self._quantities(before), self._quantities([*before, *on])
        off = Counter[tuple[str, str]]()
        for counted, quantity in then.items():
            month, lane, version, number = counted
            book = self.books[version]
            if book["currency"] == currency:
                # number -1: tokens of the lane
                rate = None if number < 0 else book["rates"][number]
                off[month, lane] -= _reduction(quantity, rate, book)
                off[month, lane] += _reduction(first[counted], rate, book)
        return off

    def _quantities(self, rows: Iterable[Written]) -> Counter[tuple[str, str, str, int]]:
        sums = Counter[tuple[str, str, str, int]]()
        for row in rows:
            number = self._rate(row)
            if number is not None:
                sums[row.month, row.lane, row.version, number] += row.gpu_ms
            sums[row.month, row.lane, row.version, -1] += row.tokens
        return sums

    def _discounts(
        self, month: str, lines: Counter[tuple[str, str]], volume: Counter[tuple[str, str]]
    ) -> int:
        off = 0
        for discount in self._agreed(month).get("discounts", ()):
            if _within(discount, month):
                price = sum(
                    amounts[key]
                    for amounts in (lines, volume)
                    for key in amounts
                    if key[0] == month and discount.get("lane") in (None, key[1])
                )
                off -= round(Fraction(price * discount["rate_ppm"], MILLION))
        return off

    def _overage(self, month: str, rows: Iterable[Written], currency: str) -> int:
        """Surcharge on all time of a month above its limit."""
        agreed, soft = self._agreed(month).get("overage"), self.soft.get(month)
        if agreed is None or soft is None:
            return 0
        hourly = agreed.get("gpu_hour_micro")
        if hourly is not None and agreed["currency"] != currency:
            return 0
        hours: dict[tuple[Any, ...], list[Written]] = defaultdict(list)
        for row in rows:
            if row.month == month:
                hours[row.hour, row.job, row.lane, row.version, *row.use].append(row)
        used, more, quantities = 0, Fraction(0), Counter[tuple[str, str, int | None]]()
        for _, of_use in sorted(hours.items(), key=lambda entry: entry[0]):
            row, time = of_use[0], sum(entry.gpu_ms for entry in of_use)
            begins, over = used, min(max(used + time - soft, 0), time)
            used = begins + time
            rate = self._rate(row)
            counted = row.lane, row.version, rate
            quantities[counted] += time
            if over and self.books[row.version]["currency"] == currency:
                if hourly is None:
                    more += Fraction(over * self._hourly(row) * agreed["surcharge_ppm"], MILLION)
                else:
                    end = quantities[counted]
                    more += self._dearer(row, rate, end - over, end, hourly)
        return round(more / HOUR_MS)

    def _dearer(self, row: Written, rate: int | None, begin: int, end: int, least: int) -> int:
        """Sum what prices below `least` lack between two quantities of a month, tier by tier."""
        tiers = [] if rate is None else self.books[row.version]["rates"][rate]["tiers"]
        bounds = [0, *(tier["above"] * HOUR_MS for tier in tiers), max(end, 10**18)]
        prices = [self._hourly(row), *(tier["unit_micro"] for tier in tiers)]
        return sum(
            max(min(end, upper) - max(begin, lower), 0) * max(least - price, 0)
            for price, lower, upper in zip(prices, bounds, bounds[1:], strict=False)
        )

    def _rate(self, row: Written) -> int | None:
        """Return the number of the most specific rate: by role, then accelerator, device, spot."""
        best: tuple[tuple[bool, ...], int] | None = None
        for number, rate in enumerate(self.books[row.version]["rates"]):
            device = rate["device"]
            if (
                rate["lane"] == row.lane
                and rate["role"] in (None, row.role)
                and device in (None, row.device, row.accelerator)
                and rate["spot"] in (None, row.spot)
            ):
                general = device in ("cpu", "cuda")
                named = device is not None
                says = (
                    rate["role"] is not None,
                    named and not general,
                    named,
                    rate["spot"] is not None,
                )
                if best is None or says > best[0]:
                    best = says, number
        return None if best is None else best[1]

    def _hourly(self, row: Written) -> int:
        book, number = self.books[row.version], self._rate(row)
        price: int = (
            book["gpu_hour_micro"][row.lane]
            if number is None
            else book["rates"][number]["gpu_hour_micro"]
        )
        return price

    def _per_million(self, row: Written) -> int:
        price: int = self.books[row.version]["token_micro_per_million"]
        return price


def _reduction(quantity: int, rate: Json | None, book: Json) -> int:
    """Discount of tiers on a quantity: each unit above a tier's bound costs that tier's price."""
    listed = book["token_micro_per_million"] if rate is None else rate["gpu_hour_micro"]
    tiers = book["token_tiers"] if rate is None else rate["tiers"]
    per = MILLION if rate is None else HOUR_MS
    off = Fraction(0)
    for tier, following in zip_longest(tiers, tiers[1:]):
        upper = quantity if following is None else min(quantity, following["above"] * per)
        off += Fraction(max(upper - tier["above"] * per, 0) * (listed - tier["unit_micro"]), per)
    return round(off)


def _within(term: Json, month: str) -> bool:
    first, last = term.get("first_month"), term.get("last_month")
    return (first is None or first <= month) and (last is None or month <= last)


def _of_month(amounts: Counter[tuple[str, str]], month: str) -> Iterable[int]:
    return (amount for (name, _), amount in amounts.items() if name == month)


def _flat(bill: Bill) -> Iterable[int]:
    return (
        *(bill.amount_micro, bill.net_micro, bill.contract_micro, bill.volume_micro),
        *(bill.storage_micro, bill.answers_micro),
    )

"""`tunery prices`: imports price books into the log, and shows those that are there."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunery.billing.currency import in_units
from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api

EPILOG = """\
\b
Examples:
  tunery prices import 2026-12.json
  tunery prices import 2026-12.json --json
  tunery prices list
  tunery prices show 2026-12
  tunery tenant plan acme --prices 2026-12 --next-month
"""


@click.group("prices", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Import and show price books (admin key).

    An imported version never changes: new prices are a new version. Tenants move to it by
    `tunery tenant plan`; jobs keep the prices of their admission.
    """


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@_api.asking
def import_book(api: "Api", file: Path, as_json: bool) -> None:
    """Import the price book in FILE. Importing the same file again changes nothing."""
    content = file.read_bytes()
    try:
        json.loads(content)
    except ValueError as error:
        raise click.ClickException(f"{file} is not JSON: {error}. Correct it there.") from None
    imported = api.import_prices(content)
    following = [("next", f"tunery tenant plan TENANT --prices {imported['id']}")]
    _api.show_one(imported, as_json, [*_fields(imported), *following])


_api.add_list(
    command,
    "List price books in the order of their first days.",
    lambda api: api.price_books(),
    {
        "version": "id",
        "from": lambda entry: entry["book"]["effective_from"],
        "currency": lambda entry: entry["book"]["currency"],
        "GPU-hour": lambda entry: _lanes(entry["book"]["gpu_hour_micro"]),
        "in force": lambda entry: "yes" if entry["in_force"] else "no",
        "new tenants": lambda entry: "yes" if entry["is_default"] else "",
    },
)


def _fields(entry: dict[str, Any]) -> list[tuple[str, object]]:
    book = entry["book"]
    return [
        ("version", entry["id"]),
        ("from", book["effective_from"]),
        ("currency", book["currency"]),
        ("GPU-hour", _lanes(book["gpu_hour_micro"])),
        *((f"  {_use(rate)}", _falling(rate)) for rate in book["rates"]),
        ("GB-month", in_units(book["storage_micro_per_gb_month"])),
        *((name, in_units(price)) for name, price in _of_answers(book)),
        ("in force", "yes" if entry["in_force"] else "no"),
        ("new tenants", "get it" if entry["is_default"] else "get another"),
    ]


@command.command("show")
@click.argument("version")
@_api.shown(_fields)
def show_book(api: "Api", version: str) -> Any:
    """Show the price book VERSION."""
    return api.price_book(version)


def _of_answers(book: dict[str, Any]) -> list[tuple[str, int]]:
    """Prices of a million tokens of answers, where they have any."""
    prices = book.get("answers")
    if prices is None:
        return []
    return [
        (f"million tokens {name}", prices[f"{field}_micro_per_million"])
        for name, field in (("read", "prompt"), ("repeated", "cached"), ("written", "completion"))
    ]


def _falling(rate: dict[str, Any]) -> str:
    """A rate's price, and what more of a month costs: `3.00, 2.50 above 100`."""
    tiers = (f"{in_units(tier['unit_micro'])} above {tier['above']:,}" for tier in rate["tiers"])
    return ", ".join((in_units(rate["gpu_hour_micro"]), *tiers))


def _lanes(prices: dict[str, int]) -> str:
    return ", ".join(f"{lane} {in_units(micro)}" for lane, micro in sorted(prices.items()))


def _use(rate: dict[str, Any]) -> str:
    """Describe the usage that a rate applies to: `standard, eval, h200, spot`."""
    spot = {True: "spot", False: "not spot", None: None}[rate["spot"]]
    said = (rate["lane"], rate["role"], rate["device"], spot)
    return ", ".join(word for word in said if word is not None)

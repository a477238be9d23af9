"""`tunery tenant`: tenants, their plans, billing terms, suspension, erasure; for operators."""

import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from tunery.billing.currency import in_units
from tunery.cli import _api, _options
from tunery.cli._billing_terms import billing_fields
from tunery.cli.invoice import micro_of
from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tunery.client import Api
    from tunery.client.shapes import TenantObject

HOUR_MS = 3_600_000
POLL_S = 1.0
EPILOG = """\
\b
Examples:
  tunery tenant create acme --name "Acme Ltd" --plan standard
  tunery tenant create lab --plan premium --soft-hours 100 --hard-hours 200 --concurrency 4
  tunery tenant plan acme --plan premium
  tunery tenant plan acme --soft-hours 100 --hard-hours 200 --concurrency 4 --next-month
  tunery tenant billing acme terms.json --from-month 2026-12
  tunery tenant prepaid acme --amount 500.00 --reference P-17 --last-month 2027-10
  tunery tenant revoke-prepaid acme P-17
  tunery tenant suspend acme
  tunery tenant resume acme
  tunery tenant erase acme
  tunery tenant list
"""


@click.group("tenant", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Create tenants, change their plans, suspend, erase and list them (admin key)."""


@command.command("create")
@click.argument("tenant")
@click.option("--name", help="Display name. [its id]")
@click.option(
    "--plan",
    type=click.Choice(["premium", "standard", "free"]),
    default="standard",
    show_default=True,
    help="Its lane and its prices.",
)
@click.option(
    "--soft-hours", type=click.IntRange(0), help="GPU-hours a month; use above this is overage."
)
@click.option(
    "--hard-hours",
    type=click.IntRange(0),
    help="GPU-hours a month; at this limit no job is accepted.",
)
@click.option("--concurrency", type=click.IntRange(1), help="Jobs running or waiting at once.")
@_api.asking
def create(
    api: "Api",
    tenant: str,
    name: str | None,
    plan: str,
    soft_hours: int | None,
    hard_hours: int | None,
    concurrency: int | None,
    as_json: bool,
) -> None:
    """Create TENANT. Limits come from the plan, or all three from the options."""
    body = {"id": tenant, "name": name or tenant, "plan": plan}
    limits = _limits(soft_hours, hard_hours, concurrency)
    created = api.create_tenant(body | limits)
    following = [("next", f"tunery key create {created['id']}")]
    _api.show_one(created, as_json, [*_fields(created), *following])


def _limits(
    soft_hours: int | None, hard_hours: int | None, concurrency: int | None
) -> dict[str, Any]:
    """The body's limits, or none. Raises UsageError when only some are given."""
    if soft_hours is None and hard_hours is None and concurrency is None:
        return {}
    if soft_hours is None or hard_hours is None or concurrency is None:
        raise click.UsageError("Give --soft-hours, --hard-hours and --concurrency together.")
    limits = {
        "soft_gpu_ms": soft_hours * HOUR_MS,
        "hard_gpu_ms": hard_hours * HOUR_MS,
        "concurrency": concurrency,
    }
    return {"limits": limits}


def _fields(tenant: "TenantObject") -> list[tuple[str, object]]:
    limits, scheduled = tenant["limits"], tenant["scheduled_plan"]
    return [
        ("tenant", tenant["id"]),
        ("name", tenant["name"]),
        ("plan", tenant["plan"]),
        ("soft limit", _api.hours(limits["soft_gpu_ms"])),
        ("hard limit", _api.hours(limits["hard_gpu_ms"])),
        ("concurrent jobs", limits["concurrency"]),
        ("prices", tenant["price_version"]),
        ("then", scheduled and f"{scheduled['plan']} {_api.moment(scheduled['effective_at'])}"),
        ("suspended", _api.moment(tenant["suspended_at"])),
    ]


@command.command("plan")
@click.argument("tenant")
@click.option("--plan", type=click.Choice(["premium", "standard", "free"]), help="The new plan.")
@click.option("--soft-hours", type=click.IntRange(0), help="As in `tunery tenant create`.")
@click.option("--hard-hours", type=click.IntRange(0), help="As in `tunery tenant create`.")
@click.option("--concurrency", type=click.IntRange(1), help="As in `tunery tenant create`.")
@click.option("--prices", help="Version of the price book for new jobs.")
@click.option("--next-month", is_flag=True, help="From the first of the next month on (UTC).")
@_api.asking
def change_plan(
    api: "Api",
    tenant: str,
    plan: str | None,
    soft_hours: int | None,
    hard_hours: int | None,
    concurrency: int | None,
    prices: str | None,
    next_month: bool,
    as_json: bool,
) -> None:
    """Change the plan of TENANT. A change that was scheduled before is replaced.

    Options that are not given stay as they are; a new plan brings its limits. Jobs that were
    submitted keep their lane and their prices.
    """
    body: dict[str, Any] = {"effective": "next_month" if next_month else "now"}
    body |= {} if plan is None else {"plan": plan}
    body |= {} if prices is None else {"price_version": prices}
    body |= _limits(soft_hours, hard_hours, concurrency)
    if len(body) == 1:
        raise click.UsageError("Nothing to change: give --plan, --prices or the limits.")
    changed = api.change_plan(tenant, body)
    stranded = [] if prices is None else _stranded(api, tenant, prices)
    _api.show_one(changed, as_json, [*_fields(changed), *stranded])


def _stranded(api: "Api", tenant: str, prices: str) -> list[tuple[str, object]]:
    """Prepaid money that pays no bill at these prices: it has another currency."""
    own = api.price_book(prices)["book"]["currency"]
    left = Counter[str]()
    for paid in api.prepaid(tenant):
        left[paid["currency"]] += paid["left_micro"]
    return [
        ("prepaid, not for bills in " + own, f"{in_units(micro)} {currency}")
        for currency, micro in sorted(left.items())
        if currency != own and micro
    ]


@command.command("billing")
@click.argument("tenant")
@click.argument("terms", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--from-month", metavar="YYYY-MM", help="First month with these terms. [this month]")
@_api.shown(billing_fields)
def set_billing(api: "Api", tenant: str, terms: Path, from_month: str | None) -> Any:
    """Set the billing terms of TENANT from the JSON file TERMS.

    Buyer, seller, taxes, days to pay, discounts, overage and commitment; what the file leaves out
    is empty. They hold until the next month that has its own. Closed invoices stay.
    docs/reference/billing.md has an example.
    """
    try:
        body = json.loads(terms.read_bytes())
    except ValueError as error:
        raise click.BadParameter(f"{terms} is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise click.BadParameter(f"{terms} is not a JSON object.")
    if from_month is not None:
        body["from_month"] = from_month
    return api.set_billing_terms(tenant, body)


@command.command("prepaid")
@click.argument("tenant")
@click.option("--amount", required=True, help="In the tenant's currency, like 500.00.")
@click.option("--reference", required=True, help="Of the payment; used once per tenant.")
@click.option("--last-month", help="The last month whose invoice it may pay, like 2027-10.")
@_api.asking
def grant_prepaid(
    api: "Api",
    tenant: str,
    amount: str,
    reference: str,
    last_month: str | None,
    as_json: bool,
) -> None:
    """Record money that TENANT has paid in advance. Closed months use it up."""
    body = {"reference": reference, "amount_micro": micro_of(amount), "last_month": last_month}
    credit = api.grant_prepaid(tenant, body)
    fields = [
        ("reference", credit["id"]),
        ("amount", f"{in_units(credit['amount_micro'])} {credit['currency']}"),
        ("months", f"{credit['first_month']} to {credit['last_month'] or 'any'}"),
    ]
    _api.show_one(credit, as_json, fields)


@command.command("revoke-prepaid")
@click.argument("tenant")
@click.argument("reference")
@_api.shown(
    lambda credit: [
        ("reference", credit["id"]),
        ("revoked", f"{in_units(credit['revoked_micro'])} {credit['currency']}"),
    ]
)
def revoke_prepaid(api: "Api", tenant: str, reference: str) -> Any:
    """Take back what is left of the prepaid credit REFERENCE, recorded by mistake."""
    return api.revoke_prepaid(tenant, reference)


def _change(name: str, doc: str, change: "Callable[[Api, str], TenantObject]") -> None:
    @command.command(name, help=doc)
    @click.argument("tenant")
    @_api.shown(_fields)
    def changed(api: "Api", tenant: str) -> Any:
        return change(api, tenant)


_change(
    "suspend",
    "Refuse submissions and resumptions of TENANT. Jobs that it has submitted go on.",
    lambda api, tenant: api.suspend_tenant(tenant),
)
_change(
    "resume",
    "Accept submissions and resumptions of TENANT again.",
    lambda api, tenant: api.resume_tenant(tenant),
)


@command.command("erase")
@click.argument("tenant")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_api.asking
def erase(api: "Api", tenant: str, yes: bool, as_json: bool) -> None:
    """Erase TENANT and everything that it wrote, for good.

    Its keys are closed and its jobs end; then its models, files and all that is stored of them go,
    and at last its data key, with which every text of it on the log becomes unreadable. Bills and
    the audit log stay: they have identifiers only. The command waits for the end and may be
    stopped: the erasure continues, and the same command shows it again.
    """
    from tunery.client.wire import path_of

    if not yes:
        question = f"Everything of {tenant} will be gone for good. Type its name to erase it"
        if click.prompt(question, err=True) != tenant:
            raise LocalError("that is not the tenant's name", "nothing was changed; try again")
    shown = 0
    # asked again while it is not decided: an erasure that has begun is shown
    asked = path_of(("tenants", tenant, "erase"))
    state = api.send(asked, {"confirm": tenant}, str(uuid4()))
    while True:
        gone = [done["part"] for done in state["parts"] if done["erased_at"] is not None]
        for part in gone[shown:]:
            click.echo(f"{part} erased", err=True)
        shown = len(gone)
        if state["status"] == "done":
            break
        time.sleep(POLL_S)
        state = api.get("tenants", tenant, "erasure")
    parts = [(f"{done['part']} erased", _api.moment(done["erased_at"])) for done in state["parts"]]
    fields = [("tenant", tenant), ("begun", _api.moment(state["begun_at"])), *parts]
    _api.show_one(state, as_json, [*fields, ("record", state["sha256"])])


_api.add_list(
    command,
    "List tenants.",
    lambda api: api.tenants(),
    {
        "tenant": "id",
        "name": "name",
        "plan": "plan",
        "hard limit": lambda tenant: _api.hours(tenant["limits"]["hard_gpu_ms"]),
        "concurrent jobs": lambda tenant: tenant["limits"]["concurrency"],
        "created": lambda tenant: _api.moment(tenant["created_at"]),
        "suspended": lambda tenant: _api.moment(tenant["suspended_at"]),
    },
)

"""`tunery budget`: what jobs may use in a calendar month."""

from decimal import ROUND_DOWN, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import click

from schemas.units import AMOUNT_MICRO_MAX, MICRO
from tunery.cli import _api, _options

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.client.shapes import BudgetObject

TENANT: Final = "tenant"  # id of the budget of all jobs
EPILOG = """\
\b
Examples:
  tunery budget set --amount 250
  tunery budget set --amount 250 --gpu-hours 120
  tunery budget set key_8c… --amount 40.50
  tunery budget list
  tunery budget remove key_8c…
  tunery budget remove         that of all jobs
"""


@click.group("budget", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Manage monthly budgets, of all your jobs or of those of one API key.

    A submission that could pass a budget is refused. To change budgets, a key needs the scope
    budgets.write.
    """


class Amount(click.ParamType["int"]):
    """An amount of money, as millionths: never through a float."""

    name = "amount"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Raises BadParameter for what is no amount above 0 with at most six decimals."""
        if isinstance(value, int):
            return value
        try:
            micro = Decimal(value) * MICRO
            whole = micro.to_integral_value(ROUND_DOWN)
        except InvalidOperation:
            self.fail(f"{value!r} is not an amount; write it like 40.50", param, ctx)
        if not micro.is_finite() or whole != micro or not 1 <= whole <= AMOUNT_MICRO_MAX:
            text = f"must be above 0 and at most {AMOUNT_MICRO_MAX // MICRO:,}, with at most six"
            self.fail(f"{value!r} {text} decimals", param, ctx)
        return int(whole)


def _fields(budget: "BudgetObject") -> list[tuple[str, object]]:
    return [
        ("budget", budget["id"]),
        ("month", budget["month"]),
        ("amount", _amount(budget, "max_amount_micro")),
        ("used", _amount(budget, "used_micro")),
        ("held", _amount(budget, "held_micro")),
        ("left", _amount(budget, "left_micro")),
        ("GPU-hours", _api.hours(budget["max_gpu_ms"])),
        ("used", _api.hours(budget["used_gpu_ms"])),
        ("held", _api.hours(budget["held_gpu_ms"])),
        ("left", _api.hours(budget["left_gpu_ms"])),
        ("reached", f"{budget['reached_percent']} %"),
    ]


@command.command("set")
@click.argument("key_id", required=False)
@click.option("--amount", type=Amount(), help="In the currency of your prices, like 40.50.")
@click.option(
    "--gpu-hours",
    type=_options.Number(0, 1e6, min_open=True),
    help="What the jobs may use in a month.",
)
@_api.shown(_fields)
def set_budget(api: "Api", key_id: str | None, amount: int | None, gpu_hours: float | None) -> Any:
    """Set the monthly budget of all jobs, or of those of the API key KEY_ID.

    It replaces the one before: a bound that is not given is none.
    """
    bounds = {"key_id": key_id, "max_amount_micro": amount, "max_gpu_hours": gpu_hours}
    body = {name: value for name, value in bounds.items() if value is not None}
    if amount is None and gpu_hours is None:
        raise click.UsageError("Give --amount, --gpu-hours, or both.")
    return api.set_budget(body)


def _amount(budget: Any, name: str) -> str:
    return _api.money(budget[name], budget["currency"])


@command.command("list")
@_api.asking
def list_budgets(api: "Api", as_json: bool) -> None:
    """List budgets with what is used, held and left in the present month (UTC)."""
    _api.show_rows(
        api.budgets(),
        as_json,
        (
            *("budget", "month", "amount", "used", "held", "left"),
            *("GPU-hours", "used", "held", "left", "reached"),
        ),
        lambda budget: [value for _, value in _fields(budget)],
    )


@command.command("remove")
@click.argument("budget_id", default=TENANT)
@_api.removed("removed")
def remove(api: "Api", budget_id: str) -> str:
    """Remove the budget of an API key, or of all jobs. Use is counted all the same."""
    api.remove_budget(budget_id)
    return budget_id

"""Pages of usage and cost: from a month down to the event behind each line."""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from msgspec.structs import asdict
from starlette.responses import Response
from starlette.routing import Route

from schemas.units import AMOUNT_MICRO_MAX
from services.gateway.console.calls import JOBS, CallRefused, refusal_of
from services.gateway.console.visits import ROOT, Visit, route
from services.gateway.console.words import MICRO, number
from tunery.billing.sessions import session_words, tokens_in

INVOICES: Final = "/v1/invoices"
BUDGETS: Final = "/v1/budgets"
DAYS: Final = "bucket_width=1d&limit=31"
LINES: Final = 100
JOBS_SHOWN: Final = 20  # for each sum of usage: the jobs that used most
GROUPS: Final = ("job", "model", "key", "suffix")
#: group → its field in a sum of an invoice
FIELDS: Final = {"job": "job_id", "model": "model", "key": "api_key_id", "suffix": "suffix"}


@route("/money")
async def show(visit: Visit) -> Response:
    """Show this month: GPU time by day, tokens of inference, budgets, credit, invoices."""
    lists = await visit.api.get_all(
        days=f"/v1/usage?group_by=job,model,key&{DAYS}",
        answers=f"/v1/usage/completions?group_by=model,key&{DAYS}",
        invoices=INVOICES,
        prepaid="/v1/billing/prepaid",
        budgets=BUDGETS,
        keys="/v1/keys?limit=1000",
    )
    values = {
        **lists,
        "jobs_shown": JOBS_SHOWN,
        "days": daily(lists["days"] or ()),
        "trainings": summed(lists["days"] or (), "net_gpu_ms"),
        "answers": summed(lists["answers"] or ()),
    }
    return visit.page("money/money.html", key_names=names(lists["keys"]), **values)


@route("/money/budgets", "POST")
async def set_budget(visit: Visit) -> Response:
    """Replace the monthly budget of the tenant or of a key."""
    form = await visit.form()
    body: dict[str, Any] = {"key_id": form.get("key_id")}
    if "amount" in form:
        body["max_amount_micro"] = micro(form["amount"])
    if "hours" in form:
        body["max_gpu_hours"] = number(form["hours"], float)
    await visit.api.post(BUDGETS, body)
    return visit.go(f"{ROOT}/money#budgets")


@route("/money/budgets/{budget_id}/remove", "POST")
async def remove_budget(visit: Visit) -> Response:
    await visit.api.delete(visit.named(BUDGETS))
    return visit.go(f"{ROOT}/money#budgets")


@route("/money/invoices/{invoice_id}")
async def invoice(visit: Visit) -> Response:
    """Show an invoice with its sums by job, model, key or suffix, and its lines."""
    path, query = visit.named(INVOICES), visit.request.query_params
    group = query.get("group_by", "job")
    group = group if group in GROUPS else "job"
    bill = await visit.api.get(path)
    sums = await visit.api.get(f"{path}/sums", group_by=group)
    lines = await visit.api.get(f"{path}/lines", limit=LINES, after=query.get("after"))
    keys = await visit.api.get_all(keys="/v1/keys?limit=1000")
    values = {"sums": sums["data"], "lines": lines["data"], "has_more": lines["has_more"]}
    values |= {"tokens": tokens_of_sessions(bill)}
    values |= {"group": group, "groups": GROUPS, "field": FIELDS[group]}
    return visit.page("money/invoice.html", invoice=bill, key_names=names(keys["keys"]), **values)


@route("/money/invoices/{invoice_id}/pdf")
async def printed(visit: Visit) -> Response:
    """Return the API's PDF of an invoice."""
    response = await visit.api.send("GET", f"{visit.named(INVOICES)}/pdf")
    if not response.is_success:
        raise refusal_of(response)
    kept = ("content-type", "content-disposition")
    return Response(response.content, headers={name: response.headers[name] for name in kept})


@route("/money/jobs/{job_id}")
async def statement(visit: Visit) -> Response:
    """Show each line of a job's usage with the place of its event in the log."""
    path, after = f"{visit.named(JOBS)}/statement", visit.request.query_params.get("after")
    lines = await visit.api.get(path, limit=LINES, after=after)
    if not lines["data"] and after:
        raise CallRefused(404, "not_found", "There are no more lines.")
    job_id = visit.request.path_params["job_id"]
    values = {"lines": lines["data"], "has_more": lines["has_more"]}
    return visit.page("money/statement.html", job_id=job_id, **values)


def micro(amount: str) -> int:
    """Return an amount in millionths. Raises CallRefused."""
    with suppress(ArithmeticError):
        exact = Decimal(amount) * MICRO
        if exact == exact.to_integral_value() and 1 <= exact <= AMOUNT_MICRO_MAX:
            return int(exact)
    text = "Amount: give a number above 0 with at most six decimals, such as 250 or 40.50."
    raise CallRefused(400, "invalid_value", text)


def daily(buckets: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the GPU time of each day, and the height of its bar in percent of the highest."""
    days = [
        {"at": each["start_time"], "gpu_ms": sum(r["net_gpu_ms"] for r in each["results"])}
        for each in buckets
    ]
    most = max((day["gpu_ms"] for day in days), default=0) or 1
    return [{**day, "height": round(100 * day["gpu_ms"] / most, 1)} for day in days]


def summed(buckets: Sequence[Mapping[str, Any]], by: str = "output_tokens") -> list[dict[str, Any]]:
    """Sum usage over all days by model and key, with their jobs; largest `by` first."""
    counts: dict[tuple[Any, Any], Counter[str]] = {}
    jobs: dict[tuple[Any, Any], Counter[str]] = {}
    for result in (result for bucket in buckets for result in bucket["results"]):
        who = (result["model"], result["api_key_id"])
        counted = counts.setdefault(who, Counter())
        counted.update({n: v for n, v in result.items() if isinstance(v, int)})
        if result.get("job_id"):
            jobs.setdefault(who, Counter())[result["job_id"]] += result[by]
    rows = [
        {"model": who[0], "key": who[1], "jobs": jobs.get(who, Counter()), **sums}
        for who, sums in counts.items()
    ]
    return sorted(rows, key=lambda row: -row[by])


def tokens_of_sessions(bill: Mapping[str, Any]) -> str:
    """Describe the session tokens of an invoice; empty: there are none."""
    tokens = tokens_in(bill)
    return session_words(tokens) if any(asdict(tokens).values()) else ""


def names(keys: Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """Return the keys' names by their ids, where the reader may see them."""
    return {key["id"]: key["name"] or key["id"] for key in keys or ()}


ROUTES: Final[tuple[Route, ...]] = (
    show,
    set_budget,
    remove_budget,
    invoice,
    printed,
    statement,
)

"""Money: days and sums, an invoice down to the event of a line, and keys that may not see all."""

from schemas.units import HOUR_MS
from services.gateway.console.money.page import daily, summed
from tests.unit.services.gateway.accounts.test_budget_routes import keeper as budget_keeper
from tests.unit.services.gateway.billing.test_invoice_routes import MONTH, billed
from tests.unit.services.gateway.billing.used import lease, sliced, use
from tests.unit.services.gateway.console.consoles import OWN_SITE, console_of, key_of, signed_in
from tests.unit.services.gateway.control_plane import ControlPlane
from tests.unit.services.gateway.jobs.test_routes import ready, submit


async def test_an_invoice_leads_to_the_events_of_its_lines(api: ControlPlane) -> None:
    client, file_id = await ready(api)
    job_id = (await submit(client, file_id, suffix="billed")).json()["id"]
    hour = api.deps.clock.now_ms() // HOUR_MS
    offset = await use(api, sliced(lease(client.headers["x-tenant"], job_id), hour))
    async with signed_in(console_of(api), key_of(client)) as browser:
        month = await browser.get("/console/money")
        assert f"/console/money/invoices/{MONTH}-EUR" in month.text
        assert "Trainings by model and key" in month.text
        assert "<td><bdi>tiny-llama</bdi></td>" in month.text
        assert f'href="/console/money/jobs/{job_id}">of one job</a>' in month.text
        invoice = await browser.get(f"/console/money/invoices/{MONTH}-EUR")
        assert f"/console/money/jobs/{job_id}#{hour * 3_600}" in invoice.text
        assert "€2.40" in invoice.text
        by_suffix = await browser.get(f"/console/money/invoices/{MONTH}-EUR?group_by=suffix")
        assert "<bdi>billed</bdi>" in by_suffix.text
        statement = await browser.get(f"/console/money/jobs/{job_id}")
        assert f":{offset}</code>" in statement.text
        pdf = await browser.get(f"/console/money/invoices/{MONTH}-EUR/pdf")
        assert pdf.headers["content-type"] == "application/pdf"
        for path in ("invoices/2020-01-EUR", "invoices/2020-01-EUR/pdf", "jobs/ftjob-none"):
            assert (await browser.get(f"/console/money/{path}")).status_code == 404, path
    other = await api.tenant()
    async with signed_in(console_of(api), key_of(other)) as browser:
        assert (await browser.get(f"/console/money/jobs/{job_id}")).status_code == 404


async def test_a_budget_is_set_and_removed_by_a_key_that_may(api: ControlPlane) -> None:
    client, (keeper, key_id, _) = await billed(api), await budget_keeper(api)
    path = "/console/money/budgets"
    async with signed_in(console_of(api), key_of(keeper)) as browser:
        assert path in (await browser.get("/console/money")).text
        form = {"key_id": key_id, "amount": "40.50", "hours": "1.5"}
        assert (await browser.post(path, data=form)).status_code == 403, "of another site"
        for amount in ("many", "0", "NaN", "Infinity", "1e99999999", "1.0000001", "-1"):
            wrong = await browser.post(path, data={"amount": amount}, headers=OWN_SITE)
            assert (wrong.status_code, "Amount: give" in wrong.text) == (400, True), amount
        wrong = await browser.post(path, data={"hours": "many"}, headers=OWN_SITE)
        assert (wrong.status_code, "max_gpu_hours" in wrong.text) == (400, True)
        assert (await browser.post(path, data={}, headers=OWN_SITE)).status_code == 400
        assert (await keeper.get("/v1/budgets")).json()["data"] == []
        assert (await browser.post(path, data=form, headers=OWN_SITE)).status_code == 303
        (budget,) = (await keeper.get("/v1/budgets")).json()["data"]
        assert (budget["id"], budget["max_amount_micro"]) == (key_id, 40_500_000)
        page = (await browser.get("/console/money")).text
        assert "of €40.50" in page
        assert f"{path}/{key_id}/remove" in page
        removing = f"{path}/{key_id}/remove"
        async with signed_in(console_of(api), key_of(client)) as stranger:
            assert path not in (await stranger.get("/console/money")).text
            answers = [
                await stranger.post(path, data=form, headers=OWN_SITE),
                await stranger.post(removing, headers=OWN_SITE),
            ]
            assert [answer.status_code for answer in answers] == [403, 404]
        assert (await browser.post(removing, headers=OWN_SITE)).status_code == 303
        assert (await keeper.get("/v1/budgets")).json()["data"] == []


async def test_what_a_key_may_not_read_is_named(api: ControlPlane) -> None:
    client = await billed(api)
    tenant = client.headers["x-tenant"]
    body = {"name": "bill", "scopes": ["billing.read", "keys.read"]}
    created = (await api.api.post(f"/v1/tenants/{tenant}/keys", json=body)).json()
    async with signed_in(console_of(api), created["key"]) as browser:
        page = await browser.get("/console/money")
        assert page.status_code == 200
        assert "budgets.read" in page.text
        assert 'href="/console/models"' not in page.text
        assert (await browser.get("/console/models")).status_code == 403


def test_the_busiest_day_has_the_highest_bar() -> None:
    buckets = [
        {"start_time": at, "results": [{"net_gpu_ms": ms}] * n}
        for at, ms, n in ((0, 0, 0), (1, 10, 2), (2, 40, 1))
    ]
    assert [day["height"] for day in daily(buckets)] == [0.0, 50.0, 100.0]
    assert daily([]) == []


def test_answers_are_summed_over_days() -> None:
    result = {"model": "m", "api_key_id": "k", "output_tokens": 3, "object": "x"}
    other = {**result, "api_key_id": None, "output_tokens": 5}
    rows = summed([{"results": [result, other]}, {"results": [result]}])
    assert [(row["key"], row["output_tokens"]) for row in rows] == [("k", 6), (None, 5)]


def test_a_sum_has_its_jobs_by_their_use() -> None:
    use = {"model": "m", "api_key_id": "k", "net_gpu_ms": 2}
    days = [
        [{**use, "job_id": "a"}, {**use, "job_id": "b", "net_gpu_ms": 3}],
        [{**use, "job_id": "a"}],
    ]
    (row,) = summed([{"results": results} for results in days], "net_gpu_ms")
    assert row["net_gpu_ms"] == 7
    assert row["jobs"].most_common() == [("a", 4), ("b", 3)]

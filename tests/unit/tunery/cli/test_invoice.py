"""Commands of operators and finance for invoices."""

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from schemas.session import TOKEN_KINDS, SessionTokens
from services.gateway.billing.domain.invoice_responses import invoice_response, line_responses
from tests.unit.services.gateway.billing.domain.test_invoice_responses import (
    credited,
    prepaid,
    sample,
)
from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi, page
from tunery.billing.sessions import SessionUse
from tunery.cli.invoice import micro_of
from tunery.cli.main import main
from tunery.client import Api

INVOICES = {soft: sample(soft) for soft in (None, 1)}


def run(monkeypatch: pytest.MonkeyPatch, *words: str, soft: int | None = None) -> Result:
    def handle(request: httpx.Request) -> httpx.Response:
        invoice = invoice_response(INVOICES[soft], lambda *_: None).model_dump()
        if request.url.path == "/v1/invoices/2026-11-EUR/pdf":
            return httpx.Response(200, content=b"%PDF-1")
        if request.url.path.endswith("/lines"):
            assert request.url.path == "/v1/invoices/2026-11-EUR/lines"
            data: list[Any] = [line.model_dump() for line in line_responses(INVOICES[soft])]
        else:
            data = [invoice] if request.url.params.get("period") != "2026-10" else []
        assert request.url.params["tenant"] == "acme"
        return httpx.Response(200, json={"data": data, "has_more": False, "last_id": "x"})

    def connected(url: str, key: str) -> Api:
        return Api(url, key, transport=httpx.MockTransport(handle))

    monkeypatch.setattr("tunery.client.Api", connected)
    environ = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k", "COLUMNS": "100"}
    return CliRunner().invoke(main, ["invoice", *words], env=environ)


@pytest.mark.parametrize(
    ("typed", "micro"),
    [("-5.00", -5_000_000), ("0.000001", 1), ("12", 12_000_000), ("1e1", 10_000_000)],
)
def test_amounts_are_exact(typed: str, micro: int) -> None:
    assert micro_of(typed) == micro


@pytest.mark.parametrize("typed", ["", "five", "0.0000001", "NaN", "Infinity", "5,00"])
def test_other_amounts_are_refused(typed: str) -> None:
    with pytest.raises(click.BadParameter, match="at most six decimals"):
        micro_of(typed)


@pytest.mark.parametrize("soft", [None, 1])
def test_an_adjustment_is_a_line_and_in_the_total(
    soft: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(monkeypatch, "show", "acme", "--period", "2026-11", soft=soft)
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "Invoice · 2026-11 · acme · draft" in shown
    assert "adjustment: goodwill, T-17 -5.000000" in shown
    assert "rounding: to what can be paid -0.002000" in shown
    assert "tax: VAT 19 % -0.950000" in shown
    assert shown.endswith("-5.950000")


def test_the_lines_of_a_csv_sum_to_the_invoice(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, "show", "acme", "--period", "2026-11", "--csv")
    lines = list(csv.DictReader(io.StringIO(done.output)))
    assert [line["kind"] for line in lines] == ["usage", "adjustment", "rounding", "tax"]
    assert sum(float(line["amount"]) for line in lines) == pytest.approx(-5.95)


def test_json_has_the_invoice_with_its_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    invoice = json.loads(run(monkeypatch, "show", "acme", "--period", "2026-11", "--json").output)
    assert invoice["total_micro"] == sum(line["amount_micro"] for line in invoice["lines"])
    lines = json.loads(run(monkeypatch, "lines", "acme", "--period", "2026-11", "--json").output)
    assert lines == invoice["lines"]


def test_tokens_of_a_session_are_a_line_that_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = SessionTokens(train_tokens=1_000, prefill_tokens=25, sample_tokens=7)
    use = SessionUse(session_id="session-1", price_version="v", tokens=tokens)
    monkeypatch.setitem(INVOICES, None, replace(INVOICES[None], sessions=(use,)))
    done = run(monkeypatch, "show", "acme", "--period", "2026-11", "--csv")
    lines = list(csv.DictReader(io.StringIO(done.output)))
    (line,) = [line for line in lines if line["kind"] == "session"]
    assert (line["job_id"], float(line["amount"])) == ("session-1", 0)
    assert [line[kind] for kind in TOKEN_KINDS] == ["1000", "25", "7"]
    assert sum(float(line["amount"]) for line in lines) == pytest.approx(-5.95)
    shown = run(monkeypatch, "show", "acme", "--period", "2026-11").output
    assert "tokens: 1,000 trained, 25 read, 7 sampled" in " ".join(shown.split())


def test_invoices_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, "list", "acme")
    assert "2026-11-EUR" in done.output
    assert "-5.950000" in done.output


def test_a_month_without_an_invoice_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, "show", "acme", "--period", "2026-10")
    assert (done.exit_code, "has no invoice of 2026-10" in done.output) == (1, True)


def test_an_invoice_is_written_as_pdf(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ("show", "acme", "--period", "2026-11", "--pdf")
    target = tmp_path / "november.pdf"
    done = run(monkeypatch, *words, str(target))
    assert (done.exit_code, done.output.strip()) == (0, str(target))
    assert target.read_bytes() == b"%PDF-1"
    missing = run(monkeypatch, *words, str(tmp_path / "none" / "x.pdf"))
    assert "cannot be written: No such file or directory" in missing.output
    both = run(monkeypatch, *words, str(target), "--json")
    assert "exclude each other" in both.output


def test_payments_and_refund_rules_are_below_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(INVOICES, None, prepaid())
    done = run(monkeypatch, "show", "acme", "--period", "2026-11")
    assert "prepaid, P-1: -100.000000 EUR\nto pay: 19.000000 EUR" in done.output, done.output
    monkeypatch.setitem(INVOICES, None, credited())
    done = run(monkeypatch, "show", "acme", "--period", "2026-11")
    assert "given back: work since the last checkpoint" in done.output.replace("\n", " ")
    assert "to pay" not in done.output


def test_first_hour_18_amounts_are_summed_and_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    none = dict.fromkeys(("job_id", "api_key_id", "model", "suffix", "metadata"))
    sums = [
        {**none, "id": "a", "of_jobs": True, "metadata": {"team": "ads"}, "gpu_ms": 61_000},
        {**none, "id": "b", "of_jobs": True, "metadata": {"team": ""}, "gpu_ms": 1_000},
        {**none, "id": "c", "of_jobs": False, "gpu_ms": 0},
    ]
    priced = [{**entry, "amount_micro": 5, "currency": "EUR"} for entry in sums]
    path = "GET /invoices/2026-11-EUR"
    invoices = page({"id": "2026-11-EUR"})
    api = ScriptedApi(monkeypatch, {"GET /invoices": invoices, f"{path}/sums": page(*priced)})
    words = ("invoice", "sums", "--period", "2026-11", "--by", "metadata[team]")
    shown = api.run(*words)
    assert api.requests[-1].url.params["group_by"] == "metadata[team]"
    assert [line.split() for line in shown.output.splitlines()[1:]] == [
        ["ads", "0:01:01.000", "0.000005", "EUR"],
        ["0:00:01.000", "0.000005", "EUR"],
        ["no", "job", "0.000005", "EUR"],
    ]
    assert json.loads(api.run(*words, "--json").output)[0]["metadata"] == {"team": "ads"}


def test_first_hour_18_a_tenant_sees_its_own_invoice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key of the tenant's own needs no name of it."""
    api = ScriptedApi(monkeypatch, {"GET /invoices": page()})
    assert "The key's tenant has no invoice of 2026-10." in (
        api.run("invoice", "show", "--period", "2026-10").output
    )
    assert "tenant" not in api.requests[-1].url.params


def test_first_hour_18_the_month_is_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ScriptedApi(monkeypatch, {"GET /invoices": page()})
    month = f"{datetime.now(UTC):%Y-%m}"
    for words in (("show", "acme"), ("lines", "acme")):
        assert f"no invoice of {month}" in api.run("invoice", *words).output
        assert api.requests[-1].url.params["period"] == month


@pytest.mark.parametrize(
    ("amount", "words", "answer", "is_sent"),
    [
        ("1e3", (), "n", False),
        ("1e3", (), "", False),
        ("-1000", (), "y", True),
        ("1000", ("--yes",), "", True),
        ("99.999999", (), "", True),
        ("-5.00", (), "", True),
    ],
)
def test_first_hour_18_large_adjustments_are_asked_about(
    amount: str,
    words: tuple[str, ...],
    answer: str,
    is_sent: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    adjusted = {"tenant": "acme", "period": "2026-11", "amount_micro": 1, "currency": "EUR"}
    path = "POST /tenants/acme/adjustments"
    api = ScriptedApi(monkeypatch, {path: {**adjusted, "reason": "goodwill", "reference": "T-1"}})
    typed = ("--amount", amount, "--reason", "goodwill", "--reference", "T-1")
    done = CliRunner().invoke(
        main, ["invoice", "adjust", "acme", *typed, *words], input=answer, env=ENVIRON
    )
    assert (len(api.requests), done.exit_code) == ((1, 0) if is_sent else (0, 1)), done.output

"""A report as one HTML page that needs nothing else. What people wrote is escaped everywhere."""

from itertools import groupby
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Finding
from tunery.data.reports.report import Bin, Report

TEMPLATE: Final = Path(__file__).with_name("page.html.jinja")
SHOWN_MAX: Final = 100  # of each code; the JSON report has up to 1,000
BAR_PERCENT: Final = 75  # of the width, for the longest bar


def page(report: Report, name: str) -> str:
    """Verdict, counts, findings by code, lengths, and rows as the model sees them."""
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    tokens = report.tokens
    return template.render(
        report=report,
        name=name,
        facts=_facts(report),
        errors=_groups(report.errors, report.counts),
        warnings=_groups(report.warnings, report.counts),
        unit="characters" if tokens is None else "tokens",
        bars=_bars(report.lengths if tokens is None else tokens.histogram),
    )


def _facts(report: Report) -> list[tuple[str, str]]:
    facts = [
        ("format", report.format or "unknown"),
        ("dialect", (report.dialect or "unknown").replace("_", " / ")),
        ("rows", f"{report.rows:,}"),
        ("rows with errors", f"{report.rows_with_errors:,}"),
        ("errors", f"{report.error_count:,}"),
        ("warnings", f"{report.warning_count:,}"),
    ]
    if report.tokens is not None:
        facts += [
            ("tokens", f"{report.tokens.tokens:,}"),
            ("of them learnt", f"{report.tokens.trainable_tokens:,}"),
            ("longest row, tokens", f"{report.tokens.longest_row_tokens:,}"),
        ]
    return facts


def _groups(findings: tuple[Finding, ...], counts: dict[str, int]) -> list[dict[str, Any]]:
    """Findings by code, those of the earliest rows first."""
    by_code = sorted(findings, key=lambda one: one.code)  # stable: rows stay in order
    groups = []
    for code, some in groupby(by_code, key=lambda one: one.code):
        shown = list(some)
        entry = CATALOGUE[code]
        groups.append(
            {
                "code": code,
                "count": counts[code],
                "meaning": entry.meaning,
                "fix": entry.fix,
                "shown": shown[:SHOWN_MAX],
            }
        )
    return sorted(groups, key=lambda group: group["shown"][0].row or 0)


def _bars(bins: tuple[Bin, ...]) -> list[dict[str, int]]:
    most = max((one.rows for one in bins), default=1)
    return [
        {"upto": one.upto, "rows": one.rows, "percent": max(1, BAR_PERCENT * one.rows // most)}
        for one in bins
    ]

"""Renders a report as one self-contained HTML page. All content of the dataset is escaped."""

from itertools import groupby
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Finding
from tunery.data.reports.report import Bin, CheckReport

TEMPLATE: Final = Path(__file__).with_name("page.html.jinja")
SHOWN_MAX: Final = 100  # of each code; the JSON report has up to 1,000
BAR_PERCENT: Final = 75  # of the width, for the longest bar


def render_page(report: CheckReport, name: str) -> str:
    """Render verdict, counts, findings by code, lengths and sample rows as HTML.

    `name` is the title, usually the name of the file.
    """
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


def _facts(report: CheckReport) -> list[tuple[str, str]]:
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
            ("tokens trained on", f"{report.tokens.trainable_tokens:,}"),
            ("tokens of the longest row", f"{report.tokens.longest_row_tokens:,}"),
        ]
    return facts


def _groups(findings: tuple[Finding, ...], counts: dict[str, int]) -> list[dict[str, Any]]:
    """Findings grouped by code, ordered by the first row of each group."""
    by_code = sorted(findings, key=lambda finding: finding.code)  # stable: rows stay in order
    groups = []
    for code, members in groupby(by_code, key=lambda finding: finding.code):
        shown = list(members)
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
    largest = max((bin_.rows for bin_ in bins), default=1)
    return [
        {
            "upto": bin_.upto,
            "rows": bin_.rows,
            "percent": max(1, BAR_PERCENT * bin_.rows // largest),
        }
        for bin_ in bins
    ]

"""Renders a report for a terminal."""

from collections import defaultdict
from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tunery.data.findings.codes import CATALOGUE
from tunery.data.findings.finding import Finding
from tunery.data.reports.report import CheckReport, Sample, TokenCounts

FINDINGS_SHOWN_MAX: Final = 20  # of each code; `--json` has up to 1,000
BAR_CHARS: Final = 30
SAMPLE_CHARS_MAX: Final = 600


def render_report(report: CheckReport, name: str = "") -> RenderableType:
    """Render the verdict, findings by code with position and fix, token counts and sample rows."""
    parts: list[RenderableType] = [_verdict(report, name)]
    for severity, findings in (("error", report.errors), ("warning", report.warnings)):
        if findings:
            parts.append(_findings(severity, findings, report.counts))
    if report.tokens is not None:
        parts.append(_tokens(report.tokens))
    if report.not_looked_for:
        parts.append(Text(f"not checked: {', '.join(report.not_looked_for)}", "dim"))
    parts += (_sample(sample) for sample in report.samples)
    return Group(*parts)


def _verdict(report: CheckReport, name: str) -> Text:
    accepted = report.verdict == "accepted"
    style = "bold green" if accepted else "bold red"
    text = Text.assemble((f"{'✓' if accepted else '✗'} {report.verdict}", style))
    if name:
        text.append(f"  {name}", "bold")
    kind = " ".join(part for part in (report.dialect, report.format) if part) or "unknown format"
    text.append(f"  {kind.replace('_', ' / ')}, {_counted(report.rows, 'row')}")
    if report.error_count:
        rows = _counted(report.rows_with_errors, "row")
        text.append(f", {_counted(report.error_count, 'error')} in {rows}", "red")
    if report.warning_count:
        text.append(f", {_counted(report.warning_count, 'warning')}", "yellow")
    return text


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _findings(severity: str, findings: tuple[Finding, ...], counts: dict[str, int]) -> Table:
    by_code: defaultdict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_code[finding.code].append(finding)
    color = "red" if severity == "error" else "yellow"
    table = Table(box=None, padding=(0, 2, 0, 0), title=f"{severity}s", title_justify="left")
    table.add_column("row", justify="right", style="bold", no_wrap=True)
    table.add_column("code", style=color, no_wrap=True)
    table.add_column("message and position")
    table.add_column("fix", style="dim")
    ordered = sorted(by_code.items(), key=lambda item: (item[1][0].row or 0, item[0]))
    for code, listed in ordered:
        for finding in listed[:FINDINGS_SHOWN_MAX]:
            row = "file" if finding.row is None else f"{finding.row:,}"
            message = Text(finding.message)
            if finding.pointer:
                message.append(f"  {finding.pointer}", "cyan")
            if finding.excerpt:
                message.append(f"\n{finding.excerpt}", "dim")
            table.add_row(row, code, message, CATALOGUE[code].fix)
        hidden = counts[code] - min(len(listed), FINDINGS_SHOWN_MAX)
        if hidden > 0:
            table.add_row("…", code, f"and {hidden:,} more", "")
    return table


def _tokens(tokens: TokenCounts) -> RenderableType:
    share = 100 * tokens.trainable_tokens // max(1, tokens.tokens)
    head = Text(
        f"{tokens.tokens:,} tokens, {tokens.trainable_tokens:,} of them trained on ({share} %), "
        f"longest row {tokens.longest_row_tokens:,}"
    )
    largest = max((bin_.rows for bin_ in tokens.histogram), default=1)
    table = Table.grid(padding=(0, 1))
    for bin_ in tokens.histogram:
        bar = "█" * max(1, BAR_CHARS * bin_.rows // largest)
        table.add_row(f"≤ {bin_.upto:,}", Text(bar, "blue"), f"{bin_.rows:,}")
    return Group(head, Padding(table, (0, 0, 0, 2), expand=False))


def _sample(sample: Sample) -> RenderableType:
    """A row as the model sees it; labels are green."""
    text = Text()
    for piece in sample.pieces:
        shown = "".join(
            c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in piece.text
        )
        text.append(shown, "green" if piece.learnt else "dim")
        if len(text) > SAMPLE_CHARS_MAX:
            break
    cut = len(text) > SAMPLE_CHARS_MAX or sample.more
    beginning = "beginning of " if cut else ""
    head = Text(f"{beginning}row {sample.row} as the model sees it; labels are green")
    return Group(head, Padding(text, (0, 0, 0, 2), expand=False))

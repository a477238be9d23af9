"""Amounts, times and states as text, numbers from forms, and the templates of all pages."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

MICRO: Final = 1_000_000
SYMBOLS: Final[Mapping[str, str]] = {"EUR": "€", "USD": "$", "GBP": "£"}
#: state → the class of its mark; the word itself is always shown beside it
TONES: Final[Mapping[str, str]] = {
    "running": "live",
    "succeeded": "good",
    "pass": "good",
    "failed": "bad",
    "block": "bad",
    "cancelled": "still",
    "production": "good",
    "staging": "live",
    "dev": "still",
    "quarantined": "bad",
    "delivered": "good",
    "answered": "good",
    "gave_up": "bad",
    "gone": "bad",
    "refused": "bad",
    "issued": "good",
    "draft": "still",
    "up": "good",
    "lost": "bad",
    "active": "good",
    "revoked": "still",
    "expired": "still",
    "suspended": "bad",
    "paused": "still",
}
DASH: Final = "–"
#: for fonts that have no arrow
ARROW: Final = Markup(
    '<span class="hidden">to</span><svg class="arrow" viewBox="0 0 16 10" aria-hidden="true">'
    '<path d="M1 5h13M10 1l4 4-4 4"/></svg>'
)


def money(micro: int | None, currency: str) -> str:
    """Format an amount with its currency, with more digits below one."""
    if micro is None:
        return DASH
    amount = abs(micro) / MICRO
    digits = 2 if amount >= 1 or not micro else 4 if amount >= 0.0001 else 6
    sign = "−" if micro < 0 else ""
    return f"{sign}{SYMBOLS.get(currency, currency + ' ')}{amount:,.{digits}f}"


def duration(seconds: float | None) -> str:
    """Format a time in its two largest units."""
    if seconds is None:
        return DASH
    if seconds < 0:
        return f"−{duration(-seconds)}"
    if seconds < 60:
        return (
            f"{seconds:.0f} s" if seconds >= 10 or seconds == int(seconds) else f"{seconds:.1f} s"
        )
    minutes = int(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {int(seconds) % 60} s"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1_440} d {minutes // 60 % 24} h"


def moment(seconds: int | None, form: str = "full") -> str:
    """Format a time in UTC; the script of the page rewrites it in the reader's zone.

    form: of `FORMS` in the script. A "day" is one of UTC, as bills have them.
    """
    if seconds is None:
        return DASH
    at = datetime.fromtimestamp(seconds, UTC)
    text = at.strftime({"time": "%H:%M:%S", "day": "%Y-%m-%d"}.get(form, "%Y-%m-%d %H:%M"))
    return Markup('<time datetime="{}" data-form="{}">{} UTC</time>').format(
        at.isoformat(), form, text
    )


def figure(value: float | None, digits: int = 4) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"


def small(value: float | None) -> str:
    """Format a learning rate."""
    return DASH if value is None else f"{value:.2e}"


def count(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def share(value: float | None, digits: int = 1) -> str:
    return DASH if value is None else f"{100 * value:.{digits}f} %"


def size(value: int | None) -> str:
    """Format bytes in the largest unit that leaves at least one."""
    if value is None:
        return DASH
    left, unit = float(value), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if left < 1_000:
            break
        left, unit = left / 1_000, larger
    return f"{left:.0f} {unit}" if unit == "B" else f"{left:.1f} {unit}"


def number(text: str, kind: type[int] | type[float]) -> int | float | str:
    """Return the number in a field of a form, or its text, so that the API says what is wrong."""
    try:
        value = kind(text)
        return value if math.isfinite(value) else text  # JSON has no other numbers
    except (ValueError, OverflowError):
        return text


def prose(text: str) -> str:
    """Return a sentence of the API, whose arrows are drawn."""
    return escape(text).replace("→", ARROW)


def tone(state: str | None) -> str:
    return TONES.get(state or "", "waits")


def templates() -> Environment:
    """Return the templates of this folder. Every value is escaped, regardless of the template's
    name.
    """
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Any] = {
        "money": money,
        "duration": duration,
        "moment": moment,
        "figure": figure,
        "small": small,
        "count": count,
        "share": share,
        "size": size,
        "prose": prose,
        "tone": tone,
    }
    environment.filters.update(filters)
    return environment

"""Moved models beside the old ones, as one HTML page that loads nothing."""

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from tunery.comparison.models import SHARE, MovedModel

FOLDER: Final = Path(__file__).parent
TEMPLATE: Final = "page.html.jinja"


def comparison_page(moved: Sequence[MovedModel], spent_micro: int) -> str:
    """Render what became of models. spent_micro: what the old ones' answers cost"""
    return rendered(TEMPLATE, FOLDER, title=title(moved), moved=moved, spent=dollars(spent_micro))


def title(moved: Sequence[MovedModel]) -> str:
    """Say how many models reach what is asked of them."""
    count = sum(model.reaches for model in moved)
    return f"{count} of {len(moved)} models reach {SHARE:.0%} of the old one".replace("%", " %")


def dollars(micro: int) -> str:
    return f"{Decimal(micro) / 1_000_000:.4f} USD"


def rendered(
    template: str,
    folder: Path,
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **values: Any,
) -> str:
    """Render a template of a folder, which may extend the layout that is beside this file.

    All texts of tenants and models are escaped.
    """
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader([folder, FOLDER])
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, loader=loader)
    environment.filters |= filters or {}
    return environment.get_template(template).render(**values)

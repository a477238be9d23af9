"""The schema that editors use is that of the recipes that are read."""

import json
import re
from pathlib import Path
from typing import Final

from services.gateway.jobs.recipes import FIELDS, GROUP_FIELDS
from tests.repo.recipes import document
from tunery.plan.knobs import KNOBS

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "reference" / "recipes.md"


def test_every_field_of_a_recipe_is_in_the_schema() -> None:
    properties = json.loads(document())["properties"]
    assert set(properties) == set(FIELDS)
    for group in ("training", "lora", "eval"):
        assert set(properties[group]["properties"]) == set(GROUP_FIELDS[group])


def test_every_field_of_a_recipe_has_a_line_with_values_and_a_default() -> None:
    """Hyper-parameters have theirs in the guide, which has a test of its own."""
    rows = re.findall(
        r"^\| `([a-z_.]+)` \| (.+) \| (.+) \|.*\|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    groups = ("", "placement", "budget", "eval", "training")
    fields = {
        f"{group}.{name}" if group else name
        for group in groups
        for name in GROUP_FIELDS[group]
        if name not in {*KNOBS, *groups}
    }
    assert {name for name, _, _ in rows} == fields | {"training"}
    assert all(values.strip() and default.strip() for _, values, default in rows)

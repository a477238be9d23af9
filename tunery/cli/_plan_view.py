"""How the plan of a job looks in a terminal."""

import time
from typing import Any

import click

from tunery.cli import _api
from tunery.cli._job_view import earlier_job, estimate_fields
from tunery.cli._queue_view import queue_fields, refusal_line


def show_plan(plan: Any) -> None:
    """Print what would be refused, what it would cost, each setting with its source, the nodes."""
    _api.show_one(plan, False, plan_fields(plan))
    click.echo()
    _api.show(
        plan["settings"],
        False,
        {
            "setting": "name",
            "value": lambda setting: _value(setting["value"]),
            "from": "source",
            "why": lambda setting: setting["path"] or setting["why"],
        },
    )
    click.echo()
    _api.show(
        plan["nodes"],
        False,
        {
            "nodes": "nodes",
            "slots": "slots",
            "device": lambda node: node["accelerator"] or node["device"],
            "memory": lambda node: _api.size(node["memory_bytes"]),
            "spot": lambda node: "spot" if node["spot"] else None,
            "domain": "domain",
            "fits": lambda node: node["why_not"] or "yes",
        },
    )


def plan_fields(plan: Any) -> list[tuple[str, Any]]:
    """(name, value) of a plan; first of all why the job would be refused."""
    forecast = plan["estimate"]
    refused = [(f"refused: {item['code']}", refusal_line(item)) for item in plan["refusals"]]
    expected = [
        (name, value)
        for name, value in estimate_fields({**forecast, "refusal": None})
        if name != "settings"  # which have a table
    ]
    return [
        *refused,
        ("not checked", "; ".join(plan["unchecked"])),
        ("same as", earlier_job(plan["duplicate_of"])),
        ("model", forecast["model"]),
        *expected,
        *queue_fields(plan["queue"] or {}, time.time()),
    ]


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in value.items()) or "none"
    return (", ".join(map(str, value)) or "none") if isinstance(value, list) else str(value)

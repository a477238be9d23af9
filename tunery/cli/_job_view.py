"""How a job and an estimate look in a terminal: their fields with their names."""

import time
from typing import Any

from tunery.cli import _api
from tunery.cli._queue_view import queue_fields


def job_fields(job: Any) -> list[tuple[str, Any]]:
    """(name, value) of each field of a job that a person wants to see; values may be empty."""
    progress, gate, queue = job["progress"], job["gate"], job["queue"] or {}
    cost, error = job["cost"], job["error"]
    left = progress and progress["seconds_remaining"]
    return [
        ("job", job["id"]),
        ("status", _status(job)),
        *queue_fields(queue, time.time()),
        ("model", job["model"]),
        ("result", job["fine_tuned_model"]),
        ("same as", earlier_job(job.get("duplicate_of"))),
        ("node", job["node"]),
        ("progress", progress and _progress(progress)),
        ("loss", progress and _api.figure(progress["train_loss"])),
        ("left", f"about {duration(left)}, evaluation included" if left else None),
        *(
            (f"configuration {own['variant']}", variant_line(own))
            for own in job.get("variants", ())
        ),
        ("gate", gate and f"{gate['verdict']}: {'; '.join(gate['reasons'])}"),
        *gate_lines(gate or {}),
        ("billed", _api.money(cost["amount_micro"], cost["currency"])),
        ("at most", _api.money(cost["amount_max_micro"], cost["currency"])),
        ("error", error and f"{error['code']}: {error['message']}"),
    ]


def variant_line(variant: Any) -> str:
    """Describe a configuration that a job compares: its values and its validation loss."""
    values = ", ".join(f"{name} {value}" for name, value in variant["values"].items())
    loss = variant["validation_loss"]
    came_to = "" if loss is None else f": validation loss {_api.figure(loss)}"
    return f"{values}{came_to}{', which is the result' if variant['chosen'] else ''}"


def gate_lines(gate: Any) -> list[tuple[str, Any]]:
    """List the evidence behind a verdict, as labels and texts."""
    return [
        ("skills", gate.get("skills")),
        ("own task", gate.get("own_task")),
        ("own data", gate.get("own_data")),
        *(
            (f"own {result['measure']}", measure_line(result))
            for result in gate.get("measures", ())
        ),
        *(
            (f"benchmark {result['benchmark']}", benchmark_line(result))
            for result in gate.get("benchmarks", ())
        ),
        *(
            (f"refusals {result['benchmark']}", safety_line(result))
            for result in gate.get("safety", ())
        ),
        ("judge", gate.get("judge") and judge_line(gate["judge"])),
        ("rule", gate.get("rule")),
        ("look", gate.get("look") and look_line(gate["look"])),
        ("can show", gate.get("power")),
        ("advice", gate.get("advice")),
        ("served", gate.get("served")),
        *(("suggestion", text) for text in gate.get("suggestions", ())),
    ]


def look_line(look: Any) -> str:
    """At which of the planned looks the gate decided."""
    return f"{look['number']} of {len(look['planned'])}, after {look['items']:,} items"


def measure_line(result: Any) -> str:
    """Describe both models' scores by one of the tenant's measures, and their difference."""
    means = f"{result['base']:.3f} → {result['adapter']:.3f} on {result['rows']} rows"
    bounds = f"difference {result['low']:+.3f} to {result['high']:+.3f}"
    mark = "" if result["decides"] else " (reported only)"
    return f"{result['verdict']}: {means}, {bounds}{mark}"


def benchmark_line(result: Any) -> str:
    """Describe the share of a benchmark's items that each model answered correctly."""
    shares = f"{100 * result['base']:.1f} % → {100 * result['adapter']:.1f} %"
    return f"{shares} of {result['items']} items ({result['task']})"


def safety_line(result: Any) -> str:
    """Describe the share of a safety benchmark's prompts that each model refused."""
    if result["adapter_refusals"] is None:
        return str(result["verdict"])
    shares = f"{100 * result['base_refusals']:.1f} % → {100 * result['adapter_refusals']:.1f} %"
    bounds = f"{100 * result['low']:.1f} to {100 * result['high']:.1f} %"
    over = ""
    if result["adapter_over_refusals"] is not None:
        over = f", {100 * result['adapter_over_refusals']:.1f} % of {result['safe']} safe ones"
    of_unsafe = f"{shares} of {result['unsafe']} unsafe prompts ({bounds})"
    return f"{result['verdict']}: {of_unsafe}{over}"


def judge_line(judge: Any) -> str | None:
    """Describe a judge's comparison of both models' answers; None if it was not used."""
    if not judge["used"]:
        return None
    counts = f"{judge['wins']} wins, {judge['losses']} losses, {judge['ties']} ties"
    rate = "" if judge["win_rate"] is None else f", win rate {judge['win_rate']:.2f}"
    bounds = f" ({judge['low']:.2f} to {judge['high']:.2f})" if rate else ""
    order = judge["first_position"] + judge["second_position"]
    return f"{judge['verdict']}: {counts}{rate}{bounds}, {order:.0%} decided by the order alone"


def earlier_job(earlier: Any) -> str | None:
    """An earlier job with the same configuration, and what became of it; None: there was none."""
    if earlier is None:
        return None
    result = f", {earlier['fine_tuned_model']}" if earlier["fine_tuned_model"] else ""
    return f"{earlier['id']} ({earlier['status']}{result})"


def _status(job: Any) -> str:
    """The status of a job, and its phase where that says more."""
    status, phase = str(job["status"]), job["phase"]
    return status if phase in (status, "done") else f"{status} ({phase})"


def _progress(progress: Any) -> str:
    step = f"step {progress['step']} of {progress['total_steps']}"
    return f"{step}, {percent(progress)} of the job"


def percent(progress: Any) -> str:
    """How much of a job is done, rounded down: 100 % is one that has succeeded."""
    return f"{int(progress['percent'])} %"


def duration(seconds: int) -> str:
    """Format a time as people say it: `45 s`, `2 min 5 s`, `3 h 20 min`."""
    minutes, rest = divmod(seconds, 60)
    if minutes < 1:
        return f"{rest} s"
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def engine_line(engine: Any) -> str | None:
    """The engine of an estimate, and where it ran, if it has not run on such devices."""
    if engine is None:  # a server from before there were several
        return None
    text = f"{engine['name']}, weights {engine['weights']}: {engine['reason']}"
    ran_on = " and ".join(engine["ran_on"])
    return f"{text}; experimental: ran on {ran_on} only" if engine["experimental"] else text


def estimate_fields(forecast: Any) -> list[tuple[str, Any]]:
    """(name, value) of an estimate; first of all why the job would be refused."""
    if not forecast["estimation_available"]:
        return [("no estimate", forecast["unavailable_reason"])]
    currency = forecast["currency"]
    return [
        ("refused", forecast["refusal"]),
        ("tokens", f"{forecast['trained_tokens']:,} in {forecast['steps']:,} steps"),
        ("memory", _api.size(forecast["memory_bytes"])),
        ("chosen for it", forecast.get("memory_reason")),
        ("engine", engine_line(forecast.get("engine"))),
        ("time", f"about {duration(forecast['expected_duration_seconds'])} once it runs"),
        ("use", _api.hours(forecast["train_gpu_ms"] + forecast["eval_gpu_ms"])),
        ("price", _api.money(forecast["amount_micro"], currency)),
        ("at most", _api.money(forecast["amount_max_micro"], currency)),
        ("settings", ", ".join(f"{k} {v}" for k, v in forecast["hyperparameters"].items())),
    ]

"""`tunery gate`: what the gate allows, and what people decide besides."""

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tunery.cli import _api, _options
from tunery.cli._gate_benchmarks import import_benchmark, list_benchmarks, remove_benchmark
from tunery.cli._job_view import gate_lines
from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from tunery.client import Api

STAGES = ("capability", "production", "holdout", "judge", "safety")
EPILOG = """\
\b
Examples:
  tunery gate list
  tunery gate show ft:smol:acme:demo:1a2b3c4d
  tunery gate report ft:smol:acme:demo:1a2b3c4d --output report.html
  tunery gate run ft:smol:acme:demo:1a2b3c4d
  tunery gate set --drop-max 0.02
  tunery gate set smollm2-135m-instruct --blocks capability --blocks holdout --gain-min 0.1
  tunery gate set --benchmark mmlu --benchmark xstest --blocks safety --refusal-min 0.9
  tunery gate set --benchmark mmlu --look 0.2 --look 0.6 --look 1
  tunery gate import mmlu mmlu/test/ --examples mmlu/dev/
  tunery gate import gsm8k gsm8k/test.jsonl --examples gsm8k/train.jsonl
  tunery gate import xstest xstest_prompts.csv --name refusals
  tunery gate benchmarks
  tunery gate remove refusals
  tunery gate reset smollm2-135m-instruct
  tunery gate override ft:smol:acme:demo:1a2b3c4d --reason "Only poems are asked of it"
  tunery gate quarantine ft:smol:acme:demo:1a2b3c4d --reason "It invents telephone numbers"
"""
reason = click.option("--reason", required=True, help="Why; it is kept on the log, encrypted.")
name = click.option("--name", help="Who decides. [the user of this machine]")


@click.group("gate", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Say what the gate allows and asks, run it again, override its verdict, or quarantine."""


command.add_command(import_benchmark)
command.add_command(list_benchmarks)
command.add_command(remove_benchmark)


@command.command("list")
@_api.asking
def list_policies(api: "Api", as_json: bool) -> None:
    """List the policies: that of every base model, and `default` for those without their own."""
    _api.show_rows(
        api.get("gate", "policies")["data"],
        as_json,
        (
            *("base model", "blocks", "alpha", "drop allowed", "gain wanted", "benchmarks"),
            *("refusals wanted", "looks"),
        ),
        lambda policy: tuple(value for _, value in _fields(policy)),
    )


@command.command("show")
@click.argument("model_id")
@_api.asking
def show_verdict(api: "Api", model_id: str, as_json: bool) -> None:
    """Show what the gate found about a version."""
    job = api.job(api.model(model_id)["gate_job_id"])
    gate = job["gate"]
    if gate is None:
        raise LocalError(f"The gate has not judged {model_id}.", "see `tunery job show JOB`")
    verdict = ("gate", f"{gate['verdict']}: {'; '.join(gate['reasons'])}")
    _api.show_one(gate, as_json, [("model", model_id), verdict, *gate_lines(gate)])


@command.command("report")
@click.argument("model_id")
@click.option(
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of the page.",
)
@_api.asking
def write_report(api: "Api", model_id: str, output: Path, as_json: bool) -> None:
    """Write what the gate found as a page: statistics, plots, each item that differs."""
    try:
        api.save_gate_report(model_id, output)
    except OSError as error:
        what = f"{output} is not written: {error.strerror}"
        raise LocalError(what, "name another file") from None
    written = {"id": model_id, "file": str(output)}
    _api.show_one(written, as_json, [("model", model_id), ("report", str(output))])


@command.command("run")
@click.argument("model_id")
@_api.asking
def run_again(api: "Api", model_id: str, as_json: bool) -> None:
    """Let the gate judge a version again, as after a change of its base model's files.

    It is a job without a training: `tunery job watch JOB` follows it, and it is billed as one.
    """
    job = api.post("models", model_id, "gate")
    _api.show_one(job, as_json, [("job", job["id"]), ("model", model_id)])


def _fields(policy: Any) -> list[tuple[str, Any]]:
    drop = policy["drop_max"]
    return [
        ("base model", policy["id"]),
        ("blocks", ", ".join(policy["blocking"]) or "nothing"),
        ("alpha", f"{policy['alpha']:g}"),
        ("drop allowed", "10 %" if drop is None else f"{100 * drop:g} %"),
        ("gain wanted", f"{100 * policy['gain_min']:g} %"),
        ("benchmarks", ", ".join(policy["benchmarks"])),
        ("refusals wanted", f"{100 * policy['refusal_min']:g} %"),
        ("looks", ", ".join(f"{100 * share:g} %" for share in policy["looks"])),
    ]


@command.command("set")
@click.argument("base_model", required=False)
@click.option(
    "--blocks",
    type=click.Choice(STAGES),
    multiple=True,
    help="A comparison that blocks; can be given several times. [capability, production]",
)
@click.option("--alpha", type=_options.Number(0.001, 0.2), help="Risk of a false block. [0.05]")
@click.option("--drop-max", type=_options.Number(0, 0.5), help="Loss of accuracy that is allowed.")
@click.option("--gain-min", type=_options.Number(0, 1), help="Gain on validation rows. [0.05]")
@click.option(
    "--benchmark", "benchmarks", multiple=True, help="A benchmark that both answer; repeatable."
)
@click.option(
    "--refusal-min", type=_options.Number(0, 1), help="Share of unsafe prompts to refuse. [0]"
)
@click.option(
    "--look",
    "looks",
    type=_options.Number(0.05, 1),
    multiple=True,
    help="Share of a benchmark's items after which it may decide; rising to 1. [0.25, 0.5, 1]",
)
@_api.shown(_fields)
def set_policy(
    api: "Api",
    base_model: str | None,
    blocks: tuple[str, ...],
    alpha: float | None,
    drop_max: float | None,
    gain_min: float | None,
    benchmarks: tuple[str, ...],
    refusal_min: float | None,
    looks: tuple[float, ...],
) -> Any:
    """Set what the gate allows for BASE_MODEL, or for all without their own policy.

    It replaces the policy before: what is not given is the gate's own.
    """
    values = {
        "base_model": base_model,
        "alpha": alpha,
        "drop_max": drop_max,
        "gain_min": gain_min,
        "benchmarks": list(benchmarks) or None,
        "refusal_min": refusal_min,
        "looks": list(looks) or None,
    }
    body: dict[str, Any] = {key: value for key, value in values.items() if value is not None}
    if blocks:
        body["blocking"] = list(blocks)
    return api.write("POST", "gate", "policies", json=body)


@command.command("reset")
@click.argument("base_model", default="default")
@_api.removed("reset")
def reset(api: "Api", base_model: str) -> str:
    """Remove the policy of BASE_MODEL, or the default one."""
    api.write("DELETE", "gate", "policies", base_model)
    return base_model


def _decision_fields(model: Any) -> list[tuple[str, Any]]:
    decided = model["quarantine"] or {}
    return [
        ("model", model["id"]),
        ("quarantined", "yes" if model["quarantined"] else "no"),
        ("reason", decided.get("reason")),
        ("by", decided.get("name")),
    ]


def _decide(api: "Api", model_id: str, quarantined: bool, reason: str, name: str | None) -> Any:
    body = {"quarantined": quarantined, "reason": reason, "name": name or getpass.getuser()}
    return api.write("POST", "models", model_id, "quarantine", json=body)


@command.command("override")
@click.argument("model_id")
@reason
@name
@_api.shown(_decision_fields)
def override(api: "Api", model_id: str, reason: str, name: str | None) -> Any:
    """Take a version out of quarantine although the gate blocked it."""
    return _decide(api, model_id, False, reason, name)


@command.command("quarantine")
@click.argument("model_id")
@reason
@name
@_api.shown(_decision_fields)
def quarantine(api: "Api", model_id: str, reason: str, name: str | None) -> Any:
    """Put a version into quarantine although the gate let it pass."""
    return _decide(api, model_id, True, reason, name)

"""Writes `docs/figures.md` from the recorded results of the benches.

    python -m bench.figures run
    python -m bench.core --json | python -m bench.figures record core
    python -m bench.figures page > docs/figures.md

`run` runs every bench of the page, one after the other, and writes the page: `make figures`. It
takes a quarter of an hour. `run core gateway` runs these alone. `record NAME` reads the output of
a bench and keeps its last line, with today's date and this machine, in `bench/results/NAME.json`.
`page` prints the page; it measures nothing.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tunery.cli.demo.recording import machine

RESULTS: Final = Path(__file__).with_name("results")
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "figures.md"
HEAD: Final = """\
# Figures

<!-- Made by `python -m bench.figures page` from `bench/results/`. Do not edit. -->

One table for each benchmark: everything in a table comes from one run of its command. The machines
were shared with other work, so compare ratios rather than milliseconds. A *bare* figure is the same
work done by the plain client library in the same run.
"""
LOST: Final = "{:.1f} %"


@dataclass(frozen=True)
class Figure:
    """One row: the key in the bench's JSON (`a/b`: key b of object a), what it says, its format."""

    key: str
    text: str
    form: str = "{:,.0f}"


@dataclass(frozen=True)
class Bench:
    """One table. `command` gives the JSON."""

    name: str
    title: str
    command: str
    figures: tuple[Figure, ...]


BENCHES: Final = (
    Bench(
        "submit",
        "Submission: HTTP, decision, read model, answer",
        "python -m bench.submit --json",
        (
            Figure("sequential_p50_ms", "500 submissions one after the other, p50", "{:,.0f} ms"),
            Figure("sequential_p99_ms", "500 submissions one after the other, p99", "{:,.0f} ms"),
            Figure("concurrent_p50_ms", "200 submissions at once, p50", "{:,.0f} ms"),
            Figure("concurrent_p99_ms", "200 submissions at once, p99", "{:,.0f} ms"),
            Figure("bare_append_p50_ms", "one bare append to Kafka with fsync, p50", "{:,.1f} ms"),
        ),
    ),
    Bench(
        "gateway",
        "The API while a job trains: 50 requests a second",
        "python -m bench.gateway --json",
        (
            Figure("paced_p99_ms", "one submission a second, all requests, p99", "{:,.0f} ms"),
            Figure("bare_paced_p99_ms", "the same, bare FastAPI handler, p99", "{:,.0f} ms"),
            Figure("rush_p99_ms", "ten submissions a second, all requests, p99", "{:,.0f} ms"),
            Figure("bare_rush_p99_ms", "the same, bare FastAPI handler, p99", "{:,.0f} ms"),
            Figure("read_per_s", "reads by 8 callers, a second"),
            Figure("read_ratio_to_bare", "reads, as a multiple of the bare handler's", "{:.2f}"),
        ),
    ),
    Bench(
        "fairness",
        "What a free tenant at its limits costs a premium one of its tasks a second",
        "python -m bench.fairness --json",
        (
            Figure("reads_lost_percent", "lists of files, lost", LOST),
            Figure("uploads_lost_percent", "uploads, lost", LOST),
            Figure("previews_lost_percent", "previews, lost", LOST),
            Figure("streams_lost_percent", "first frames of a job's events, lost", LOST),
            Figure("checks_lost_percent", "checked files, lost", LOST),
            Figure("strangers_p99_ratio", "p99 of reads beside strangers' connections", "{:.2f} x"),
            Figure("flood_lost_percent", "reads, lost beside five times its limit", LOST),
            Figure("machine_lost_percent", "what a loop loses beside one of low priority", LOST),
        ),
    ),
    Bench(
        "follow",
        "200 followers of one job over HTTP, 3,600 steps at 40 a second",
        "python -m bench.follow --json",
        (
            Figure("lost", "steps lost, over all followers"),
            Figure("twice", "steps received twice, over all followers"),
            Figure("delay_p50_ms", "from the report of a step to its arrival, p50", "{:,.0f} ms"),
            Figure("delay_p99_ms", "from the report of a step to its arrival, p99", "{:,.0f} ms"),
        ),
    ),
    Bench(
        "scoring",
        "The gate's scorer beside lm-evaluation-harness, or beside its loop",
        "python -m bench.scoring --json",
        (
            Figure("items", "questions, each after five examples, both sides"),
            Figure("beside_the_harness", "the harness itself (1), or its loop (0)"),
            Figure("times_faster", "how many times faster", "{:.1f}"),
            Figure("largest_difference", "largest difference of a likelihood", "{:.6f}"),
            Figure("answers_changed", "answers that changed"),
        ),
    ),
    Bench(
        "trainer",
        "A training beside plain TRL: SmolLM2-135M, rank 16, fp32",
        "python -m bench.trainer --json",
        (
            Figure("tokens_s", "tokens a second"),
            Figure("tokens_ratio_to_trl_padded", "as a multiple of TRL's, padded", "{:.2f}"),
            Figure("tokens_ratio_to_trl_packed", "as a multiple of TRL's, packed", "{:.2f}"),
            Figure("stall_ms", "longest wait of the training for a checkpoint", "{:,.0f} ms"),
            Figure("start_s", "from an order to a warm process to its first step", "{:.1f} s"),
            Figure("memory_error_pct", "estimate of memory, off the measured peak by", "{:.1f} %"),
            Figure("evaluation_s", "evaluation of the bundled questions", "{:.1f} s"),
            Figure(
                "colocated_4_ratio",
                "four adapters in one process, how many times as fast as one after another",
                "{:.2f}",
            ),
            Figure(
                "colocated_4_steps_ratio", "the same of what comes after the first step", "{:.2f}"
            ),
            Figure("colocated_4_peak_gb", "peak memory of that process", "{:.2f} GB"),
            Figure("colocated_4_alone_peak_gb", "of four processes together", "{:.2f} GB"),
            Figure(
                "colocated_4_same_adapters", "of the four adapters, equal to those trained alone"
            ),
        ),
    ),
    Bench(
        "ranks",
        "A training by one rank and by two, a processor for each: SmolLM2-135M, rank 16, fp32",
        "python -m bench.ranks --json",
        (
            Figure("cpu_1_tokens_s", "tokens a second of one"),
            Figure("cpu_2_tokens_s", "of two"),
            Figure("cpu_times_as_fast", "how many times as fast", "{:.2f}"),
            Figure("gpu_1_tokens_s", "tokens a second of one on a GPU"),
            Figure("gpu_2_tokens_s", "of two"),
            Figure("gpu_times_as_fast", "how many times as fast", "{:.2f}"),
            Figure("gpu", "on GPUs", "{}"),
        ),
    ),
    Bench(
        "evaluation",
        "The gate with all that a tenant can ask, of a 135M model; it may take 30 minutes",
        "python -m bench.evaluation --json",
        (
            Figure("evaluation_s", "questions, prompts, losses and rows, both sides", "{:,.0f} s"),
            Figure("share_of_promise", "as a share of the 30 minutes", "{:.2f}"),
            Figure("measured_rows", "rows of the tenant that both sides answer"),
            Figure("cut_answers", "answers to them that were as long as may be"),
        ),
    ),
    Bench(
        "adaptation",
        "What settings cost: tokens for each second of one processor, and peak memory",
        "python -m bench.adaptation --json",
        tuple(
            figure
            for name, text in (
                ("lora_fp32", "LoRA, fp32"),
                ("lora_bf16", "LoRA, bf16"),
                ("qlora_fp32", "QLoRA, fp32"),
                ("qlora_bf16", "QLoRA, bf16"),
                ("dora_fp32", "DoRA, fp32"),
                ("full_fp32", "every weight, fp32"),
                ("recompute_fp32", "LoRA, fp32, `recompute`"),
                ("unpacked_fp32", "LoRA, fp32, without `packing`"),
            )
            for figure in (
                Figure(f"{name}_tokens_cpu_s", f"{text}: tokens a processor second"),
                Figure(f"{name}_peak_mb", f"{text}: peak memory", "{:,.0f} MB"),
            )
        ),
    ),
    Bench(
        "serve",
        "Answers of four adapters of the bundled base, beside `generate` of transformers and PEFT",
        "python -m bench.serve --json",
        (
            Figure("one_tokens_s", "one stream, tokens a second"),
            Figure("one_first_ms", "one stream, time to the first token", "{:,.0f} ms"),
            Figure("eight_tokens_s", "eight streams, tokens a second"),
            Figure("eight_first_ms", "eight streams, median time to the first token", "{:,.0f} ms"),
            Figure("ratio_one", "one stream, as a multiple of `generate`'s speed", "{:.2f}"),
            Figure(
                "ratio_eight_in_turn",
                "eight streams, as a multiple of `generate` one after the other",
                "{:.2f}",
            ),
            Figure(
                "ratio_eight_batched",
                "eight streams, as a multiple of `generate` in one batch",
                "{:.2f}",
            ),
            Figure("equal_texts", "texts equal to those of `generate`"),
            Figure("texts", "texts"),
        ),
    ),
    Bench(
        "core",
        "The event core",
        "python -m bench.core --json",
        (
            Figure(
                "append_read_back_p50_ratio",
                "one append with read-back, p50, as a multiple of the bare client's",
                "{:.2f}",
            ),
            Figure(
                "pipelined_ratio",
                "appends with 32 in flight, throughput as a multiple of the bare client's",
                "{:.2f}",
            ),
            Figure("replay_events_per_s", "replay: accepted, hashed and decoded events a second"),
            Figure("replay_job_events_per_s", "replay with the fold of `job`, events a second"),
            Figure("decisions_per_s", "decisions of one partition with fsync, a second"),
            Figure(
                "sampled_lost_percent",
                "of these decisions lost by traces of one request of 50",
                "{:.1f} %",
            ),
            Figure("traced_lost_percent", "the same with traces of all requests", "{:.0f} %"),
            Figure(
                "boot_1m_from_zero_s", "start of an owner: 1,000,000 records from zero", "{:,.0f} s"
            ),
            Figure("boot_1m_from_snapshot_s", "the same from its snapshot", "{:,.1f} s"),
            Figure("owner_rss_mb", "memory of an owner with 100,000 ended jobs", "{:,.0f} MB"),
            Figure(
                "ledger_ratio_to_bare",
                "usage slices into the ledger, rate as a multiple of the bare statements'",
                "{:.2f}",
            ),
        ),
    ),
    Bench(
        "billing",
        "Ledger and invoices: a tenant with 400,000 rows of a year",
        "python -m bench.billing --json",
        (
            Figure("slices_per_s", "slices and credits into the ledger, a second"),
            Figure(
                "invoice_of_400k_rows_ms",
                "invoice of the running month with its lines, median",
                "{:,.1f} ms",
            ),
            Figure("closing_ms", "closing a month of 33,333 rows, median", "{:,.0f} ms"),
            Figure("export_rows_per_s", "events exported in all formats, a second"),
            Figure("year_replay_equal", "all closed months made anew are what they were", "{}"),
        ),
    ),
    Bench(
        "scale",
        "Months that end for many tenants: over Kafka; a dead node: log in memory",
        "python -m bench.scale --nodes 1000 --tenants 2000 --closings 20000 --minutes 15 --json",
        (
            Figure(
                "closings/tenants", "tenants, each with a plan to come and a credit that expires"
            ),
            Figure("closings/ended", "months that ended within 15 minutes, all in one process"),
            Figure("closings/ended_after_s", "until the last of them", "{:,.0f} s"),
            Figure("closings/planned", "plans that came into force"),
            Figure("closings/closed", "months that were closed"),
            Figure("closings/closed_after_s", "until the last of them", "{:,.0f} s"),
            Figure("closings/expired", "credits that expired"),
            Figure("closings/closings_per_s", "months closed a second", "{:.1f}"),
            Figure("closings/cpu_s", "time of a processor that this process had", "{:,.0f} s"),
            Figure("closings/statements_per_closing", "statements per closing", "{:.2f}"),
            Figure("closings/lease_of_100000_ms", "a lease while so many wait", "{:,.0f} ms"),
            Figure("months/months_per_s", "months that end a second, of one partition"),
            Figure("dead_node/reported_after_s", "a dead node among 1,000", "{:,.0f} s"),
            Figure("dead_node/offset_requests_per_s", "requests for offsets a second", "{:.1f}"),
        ),
    ),
    Bench(
        "footprint",
        "What one job leaves in Kafka and PostgreSQL, beside machines that fail",
        "python -m bench.footprint --json",
        (
            Figure("jobs", "jobs played"),
            Figure("leases_per_job", "leases of a job, on average", "{:,.1f}"),
            Figure("journal_kb", "records of both journals for one job", "{:,.1f} kB"),
            Figure("job_kb", "of these in the journal `job`", "{:,.1f} kB"),
            Figure("pool_kb", "of these in the journal `pool`", "{:,.1f} kB"),
            Figure("description_kb", "of these descriptions of the work", "{:,.1f} kB"),
            Figure("journal_records_per_job", "records of journals for one job", "{:,.1f}"),
            Figure("commands_per_job", "commands for one job, which are trimmed", "{:,.1f}"),
            Figure("flushed_records_per_job", "records that one broker fsyncs", "{:,.1f}"),
            Figure("rows_per_job", "rows of the API and the ledger for one job", "{:,.1f}"),
            Figure("row_kb", "their bytes, before indexes", "{:,.1f} kB"),
            Figure("journal_growth", "journals of a further job, as a multiple", "{:.2f}"),
            Figure("row_growth", "rows of a further job, as a multiple", "{:.2f}"),
        ),
    ),
    Bench(
        "rebuild",
        "1,000 jobs with kills, rebuilt after PostgreSQL was lost",
        "python -m bench.rebuild --json",
        (
            Figure("records", "journal records"),
            Figure(
                "seconds/without PostgreSQL: built",
                "services and all rows are back after",
                "{:,.1f} s",
            ),
            Figure("equal", "jobs, limits, leases, usage and invoices are equal to the unit", "{}"),
        ),
    ),
    Bench(
        "scheduler",
        "Scheduling: two traces of 41 nodes, and decisions while 10,000 jobs wait",
        "python -m bench.scheduler --json",
        (
            *(
                Figure(f"{trace}/{key}", f"{text}, at {load} % load", form)
                for trace, load in (("C", 61), ("B", 80))
                for key, text, form in (
                    ("premium_under_5min_pct", "premium jobs that start within 5 minutes", "{} %"),
                    ("standard_under_1h_pct", "standard jobs that start within an hour", "{} %"),
                    ("free_under_24h_pct", "free jobs that start within 24 hours", "{} %"),
                    ("mean_wait_h", "mean wait", "{} h"),
                    ("gpu_hours_lost_pct", "GPU-hours lost to preemptions", "{} %"),
                )
            ),
            Figure("decision_p50_ms", "a decision with 1,000 nodes, p50", "{:,.2f} ms"),
            Figure("decision_p99_ms", "p99", "{:,.2f} ms"),
            Figure("decisions_per_s", "decisions a second"),
            Figure(
                "decision_of_2000_nodes_p50_ms",
                "a decision with 2,000 nodes, p50",
                "{:,.2f} ms",
            ),
            Figure("forecast_of_1000_ms", "the forecast of 1,000 jobs on 40 nodes", "{:,.1f} ms"),
            Figure("heap_bytes_a_job", "what a job leaves in the scheduler's memory", "{} bytes"),
        ),
    ),
    Bench(
        "simulation",
        "Simulation: two scenarios, faults at every await",
        "python -m simulator --seeds 2000 --first 1",
        (
            Figure("seeds", "seeds of each scenario"),
            Figure("counts/commands", "commands"),
            Figure("faults/crash", "crashes"),
            Figure("violations", "violations of invariants"),
            Figure("runs_per_s", "runs a second on all cores"),
        ),
    ),
    Bench(
        "soak",
        "Soak: rounds of kills of real processes",
        "python -m tests.soak --rounds 10 --json",
        (
            Figure("commands_acknowledged", "commands acknowledged"),
            Figure("replies", "replies read"),
            Figure("accepted", "records accepted"),
            Figure("stale_by_zombies", "records appended by paused owners after their successors"),
            Figure("problems_count", "problems found"),
            Figure("takeover_ms/p50", "`kill -9` to the next decision, p50", "{:,.0f} ms"),
            Figure("takeover_ms/max", "`kill -9` to the next decision, maximum", "{:,.0f} ms"),
        ),
    ),
    Bench(
        "data",
        "Data pipeline, from a file to packed rows",
        "python -m bench.data.scale --rows 200000 --json",
        (
            Figure("scale_rows", "rows"),
            Figure("scale_seconds", "time", "{:,.0f} s"),
            Figure("scale_anonymous_mib", "peak memory", "{:,.0f} MiB"),
        ),
    ),
)


def record(name: str, lines: Sequence[str], folder: Path = RESULTS, command: str = "") -> Path:
    """Keep the last line of a bench's output. Raises ValueError when it is no JSON object.

    command: command that printed it; empty: the bench's usual one.
    """
    figures = json.loads(lines[-1])
    if not isinstance(figures, dict):
        raise ValueError(f"the last line of {name} is no JSON object")
    result = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine(),
        "command": command or next(bench.command for bench in BENCHES if bench.name == name),
        "figures": figures.get("figures", figures),
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return path


def run(benches: Sequence[Bench], folder: Path = RESULTS) -> None:
    """Run benches one after the other and record them, so that all are of one run.

    Nothing is recorded unless all have printed their figures. Raises SystemExit that names the
    bench which has not; a goal that was missed is a figure like any other.
    """
    outputs: list[tuple[Bench, list[str]]] = []
    for bench in benches:
        sys.stderr.write(f"{bench.command} …")
        sys.stderr.flush()
        began = time.monotonic()
        program, *arguments = shlex.split(bench.command)
        assert program == "python", bench.command
        done = subprocess.run(
            [sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=False
        )
        sys.stderr.write(f" {time.monotonic() - began:.0f} s, exit code {done.returncode}\n")
        lines = done.stdout.splitlines()
        if not lines or not lines[-1].startswith("{"):
            raise SystemExit(f"{bench.command} printed no figures; nothing is recorded")
        outputs.append((bench, lines))
    for bench, lines in outputs:
        record(bench.name, lines, folder, bench.command)


def page(folder: Path = RESULTS) -> str:
    """The page of all results in the folder, in the order of BENCHES."""
    tables = [
        _table(bench, json.loads(path.read_text(encoding="utf-8")))
        for bench in BENCHES
        if (path := folder / f"{bench.name}.json").is_file()
    ]
    return "\n".join([HEAD, *tables])


def _table(bench: Bench, result: dict[str, Any]) -> str:
    figures = result["figures"]
    rows = [
        f"| {figure.text} | {figure.form.format(value)} |"
        for figure in bench.figures
        if (value := _value(figures, figure.key)) is not None
    ]
    command = result["command"]
    head = f"## {bench.title}\n\n`{command}` on {result['date']}, {result['machine']}.\n"
    return "\n".join([head, "| figure | value |", "|---|---|", *rows, ""])


def _value(figures: dict[str, Any], key: str) -> float | int | str | None:
    value: Any = figures
    for part in key.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    return "yes" if value is True else "no" if value is False else value


def main() -> None:
    """Record a result, or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("page", help="print the page")
    recording = actions.add_parser("record", help="keep the output of a bench (on standard input)")
    recording.add_argument("name", choices=[bench.name for bench in BENCHES])
    running = actions.add_parser("run", help="run the benches, record them and write the page")
    running.add_argument("names", nargs="*", help="of benches; without any: all of them")
    arguments = parser.parse_args()
    if arguments.action == "page":
        sys.stdout.write(page())
    elif arguments.action == "run":
        if unknown := set(arguments.names) - {bench.name for bench in BENCHES}:
            parser.error(f"no such bench: {', '.join(sorted(unknown))}")
        run([bench for bench in BENCHES if not arguments.names or bench.name in arguments.names])
        PAGE.write_text(page(), encoding="utf-8")
    else:
        print(record(arguments.name, sys.stdin.read().splitlines()))


if __name__ == "__main__":
    main()

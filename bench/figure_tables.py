"""The tables of the page of figures: of each bench its command, its rows and their goals."""

from dataclasses import dataclass
from typing import Final

PERCENT: Final = "{:.1f} %"
MS: Final = "{:,.0f} ms"
SECONDS: Final = "{:,.0f} s"
TIMES: Final = "{:.2f}"  # a ratio


@dataclass(frozen=True)
class Figure:
    """One row: the key in the bench's JSON (`a/b`: key b of object a), what it says, its format.

    Its goal is a bound, two, or an exact value; None: it has no such goal.
    """

    key: str
    text: str
    form: str = "{:,.0f}"
    least: float | None = None
    most: float | None = None
    exactly: float | str | None = None

    def is_met(self, value: float | str) -> bool:
        """Return whether a value reaches the goal; without one all do."""
        if self.exactly is not None:
            return value == self.exactly
        if isinstance(value, str):
            return self.least is None and self.most is None
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )

    @property
    def goal(self) -> str:
        """The goal as text; empty: there is none."""
        if self.exactly is not None:
            return self.form.format(self.exactly)
        signed = ("≥", self.least), ("≤", self.most)
        return ", ".join(
            f"{sign} {self.form.format(bound)}" for sign, bound in signed if bound is not None
        )


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
            Figure("sequential_p50_ms", "500 submissions one after the other, p50", MS),
            Figure("sequential_p99_ms", "500 submissions one after the other, p99", MS),
            Figure(
                "sequential_cpu_ms",
                "CPU time of all processes for one, one after the other",
                MS,
                most=40,
            ),
            Figure("concurrent_cpu_ms", "CPU time of all processes for one of 200", MS, most=15),
            Figure("concurrent_p50_ms", "200 submissions at once, p50", MS),
            Figure("concurrent_p99_ms", "200 submissions at once, p99", MS, most=1_000),
            Figure("bare_append_p50_ms", "one bare append to Kafka with fsync, p50", "{:,.1f} ms"),
        ),
    ),
    Bench(
        "gateway",
        "The API while a job trains: 50 requests a second",
        "python -m bench.gateway --json",
        (
            Figure("paced_p99_ms", "one submission a second, all requests, p99", MS),
            Figure("bare_paced_p99_ms", "the same, bare FastAPI handler, p99", MS),
            Figure("rush_p99_ms", "ten submissions a second, all requests, p99", MS),
            Figure("bare_rush_p99_ms", "the same, bare FastAPI handler, p99", MS),
            Figure("read_per_s", "reads by 8 callers, a second"),
            Figure("read_ratio_to_bare", "reads, as a multiple of the bare handler's", TIMES),
        ),
    ),
    Bench(
        "fairness",
        "What a free tenant at its limits costs a premium one of its tasks a second",
        "python -m bench.fairness --json",
        (
            Figure("reads_lost_percent", "lists of files, lost", PERCENT),
            Figure("uploads_lost_percent", "uploads, lost", PERCENT),
            Figure("previews_lost_percent", "previews, lost", PERCENT),
            Figure("streams_lost_percent", "first frames of a job's events, lost", PERCENT),
            Figure("checks_lost_percent", "checked files, lost", PERCENT),
            Figure("strangers_p99_ratio", "p99 of reads beside strangers' connections", "{:.2f} x"),
            Figure("flood_lost_percent", "reads, lost beside five times its limit", PERCENT),
            Figure("machine_lost_percent", "what a loop loses beside one of low priority", PERCENT),
        ),
    ),
    Bench(
        "follow",
        "200 followers of one job over HTTP, 3,600 steps at 40 a second",
        "python -m bench.follow --json",
        (
            Figure("lost", "steps lost, over all followers", exactly=0),
            Figure("twice", "steps received twice, over all followers", exactly=0),
            Figure("delay_p50_ms", "from the report of a step to its arrival, p50", MS),
            Figure("delay_p99_ms", "from the report of a step to its arrival, p99", MS),
        ),
    ),
    Bench(
        "console",
        "The console in a browser",
        "python -m bench.console --json",
        (
            Figure("stack_first_view_ms", "first view of a local stack, median", MS, most=1_000),
            Figure("stack_first_view_bytes", "its bytes, with scripts and styles", most=150_000),
            Figure("jobs", "jobs of a tenant"),
            Figure("list_ms", "the list of these, median", MS),
            Figure("steps", "steps of a job"),
            Figure("points", "points of its curve"),
            Figure(
                "frames_per_s", "frames a second while a point comes with each", "{:.1f}", least=55
            ),
            Figure("frames_idle_per_s", "frames a second while nothing comes", "{:.1f}"),
            Figure("shift", "largest shift of a page's layout while it loads", "{:.4f}", most=0.01),
        ),
    ),
    Bench(
        "sessions",
        "Steps of a loop of one's own beside those of a job: SmolLM2-135M, rank 16",
        "python -m bench.sessions --json",
        (
            Figure("job_ms", "1,000 tokens of a job's step", MS),
            Figure("session_ms", "of a step through the Tinker SDK", MS),
            Figure("overhead_percent", "what the loop costs more", PERCENT, most=15),
            Figure("first_s", "from the lease to the first answer, warm", "{:.1f} s", most=4),
            Figure("models", "models on one base at once, each in a process of its own"),
            Figure("models_ratio", "their tokens a second as a multiple of one's", TIMES),
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
            Figure("largest_difference", "largest difference of a likelihood", "{:.6f}", most=5e-5),
            Figure("answers_changed", "answers that changed", exactly=0),
        ),
    ),
    Bench(
        "trainer",
        "A training beside plain TRL: SmolLM2-135M, rank 16, fp32",
        "python -m bench.trainer --json",
        (
            Figure("tokens_s", "tokens a second"),
            Figure("tokens_ratio_to_trl_padded", "as a multiple of TRL's, padded", TIMES, least=1),
            Figure("tokens_ratio_to_trl_packed", "as a multiple of TRL's, packed", TIMES, least=1),
            Figure("stall_ms", "longest wait of the training for a checkpoint", MS),
            Figure("start_s", "from the fork of a training to its first step", "{:.1f} s"),
            Figure("memory_error_pct", "estimate of memory, off the measured peak by", PERCENT),
            Figure("evaluation_s", "evaluation of the bundled questions", "{:.1f} s"),
            Figure(
                "colocated_4_ratio",
                "four adapters in one process, how many times as fast as one after another",
                TIMES,
            ),
            Figure("colocated_4_steps_ratio", "the same of what comes after the first step", TIMES),
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
            Figure("cpu_times_as_fast", "how many times as fast", TIMES),
            Figure("gpu_1_tokens_s", "tokens a second of one on a GPU"),
            Figure("gpu_2_tokens_s", "of two"),
            Figure("gpu_times_as_fast", "how many times as fast", TIMES),
            Figure("gpu", "on GPUs", "{}"),
        ),
    ),
    Bench(
        "evaluation",
        "The gate with all that a tenant can ask, of a 135M model; it may take 30 minutes",
        "python -m bench.evaluation --json",
        (
            Figure("evaluation_s", "questions, prompts, losses and rows, both sides", SECONDS),
            Figure("share_of_promise", "as a share of the 30 minutes", TIMES, most=1),
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
            Figure("one_first_ms", "one stream, time to the first token", MS),
            Figure("eight_tokens_s", "eight streams, tokens a second"),
            Figure("eight_first_ms", "eight streams, median time to the first token", MS),
            Figure("ratio_one", "one stream, as a multiple of `generate`'s speed", TIMES, least=1),
            Figure(
                "ratio_eight_in_turn",
                "eight streams, as a multiple of `generate` one after the other",
                TIMES,
            ),
            Figure(
                "ratio_eight_batched",
                "eight streams, as a multiple of `generate` in one batch",
                TIMES,
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
                TIMES,
            ),
            Figure(
                "pipelined_ratio",
                "appends with 32 in flight, throughput as a multiple of the bare client's",
                TIMES,
            ),
            Figure("replay_events_per_s", "replay: accepted, hashed and decoded events a second"),
            Figure("replay_job_events_per_s", "replay with the fold of `job`, events a second"),
            Figure("decisions_per_s", "decisions of one partition with fsync, a second"),
            Figure(
                "sampled_lost_percent",
                "of these decisions lost by traces of one request of 50",
                PERCENT,
            ),
            Figure("traced_lost_percent", "the same with traces of all requests", "{:.0f} %"),
            Figure(
                "boot_1m_from_zero_s", "start of an owner: 1,000,000 records from zero", SECONDS
            ),
            Figure("boot_1m_from_snapshot_s", "the same from its snapshot", "{:,.1f} s"),
            Figure("owner_rss_mb", "memory of an owner with 100,000 ended jobs", "{:,.0f} MB"),
            Figure(
                "ledger_ratio_to_bare",
                "usage slices into the ledger, rate as a multiple of the bare statements'",
                TIMES,
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
            Figure("closing_ms", "closing a month of 33,333 rows, median", MS),
            Figure("export_rows_per_s", "events exported in all formats, a second"),
            Figure(
                "year_replay_equal",
                "all closed months made anew are what they were",
                "{}",
                exactly="yes",
            ),
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
            Figure("closings/ended_after_s", "until the last of them", SECONDS),
            Figure("closings/planned", "plans that came into force"),
            Figure("closings/closed", "months that were closed"),
            Figure("closings/closed_after_s", "until the last of them", SECONDS),
            Figure("closings/expired", "credits that expired"),
            Figure("closings/closings_per_s", "months closed a second", "{:.1f}"),
            Figure("closings/cpu_s", "time of a processor that this process had", SECONDS),
            Figure("closings/statements_per_closing", "statements per closing", TIMES),
            Figure("closings/lease_of_100000_ms", "a lease while so many wait", MS),
            Figure("months/months_per_s", "months that end a second, of one partition"),
            Figure("dead_node/reported_after_s", "a dead node among 1,000", SECONDS, most=30),
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
            Figure("journal_growth", "journals of a further job, as a multiple", TIMES, most=1.05),
            Figure("row_growth", "rows of a further job, as a multiple", TIMES, most=1.05),
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
            Figure(
                "equal",
                "jobs, limits, leases, usage and invoices are equal to the unit",
                "{}",
                exactly="yes",
            ),
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
                "decision_of_2000_nodes_p50_ms", "a decision with 2,000 nodes, p50", "{:,.2f} ms"
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
            Figure("violations", "violations of invariants", exactly=0),
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
            Figure("problems_count", "problems found", exactly=0),
            Figure("takeover_ms/p50", "`kill -9` to the next decision, p50", MS),
            Figure("takeover_ms/max", "`kill -9` to the next decision, maximum", MS),
        ),
    ),
    Bench(
        "data",
        "Data pipeline, from a file to packed rows",
        "python -m bench.data.scale --rows 200000 --json",
        (
            Figure("scale_rows", "rows"),
            Figure("scale_seconds", "time", SECONDS),
            Figure("scale_anonymous_mib", "peak memory", "{:,.0f} MiB"),
        ),
    ),
)

"""Near duplicates, benchmark items, personal data and secrets, as a check reports them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tunery.data.checking import check
from tunery.data.dialects.conversation import Conversation
from tunery.data.reports.report import CheckReport
from tunery.data.screening.contamination import BenchmarkItem
from tunery.data.screening.screening import ScreeningPolicy, scrub

Write = Callable[..., Path]
QUESTION = "If seven keepers light nine lamps each on every night of a week, how many are lit?"
ITEMS = [
    BenchmarkItem(benchmark="exam", source="exam.jsonl:1", question=QUESTION, answer="441"),
    BenchmarkItem(benchmark="exam", source="exam.jsonl:2", question="Never asked " * 9, answer="0"),
]
KEY = "npm_" + "a1" * 18


def chat(question: str, answer: str) -> dict[str, Any]:
    messages = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in messages]}


def positions(report: CheckReport, code: str) -> list[tuple[int | None, str]]:
    findings = (*report.errors, *report.warnings)
    return [(finding.row, finding.pointer) for finding in findings if finding.code == code]


STORY = " ".join(f"word{number} follows" for number in range(40))


def test_a_near_duplicate_is_reported_with_the_row_it_repeats(write: Write) -> None:
    rows = [
        chat("Tell.", STORY),
        chat("Sing.", "La."),
        chat("Tell.", f"{STORY} on"),
        chat("Tell.", STORY),
    ]
    report = check(write(rows), min_rows=0)
    assert positions(report, "near_duplicate") == [(3, "")]
    assert (
        "row 1"
        in report.warnings[
            [finding.code for finding in report.warnings].index("near_duplicate")
        ].message
    )
    assert report.counts["duplicate_rows"] == 1


def test_a_long_system_prompt_makes_rows_no_duplicates(write: Write) -> None:
    def row(question: str, answer: str) -> dict[str, Any]:
        row = chat(question, answer)
        row["messages"].insert(0, {"role": "system", "content": STORY})
        return row

    report = check(write([row("What is up?", "The sky."), row("Who?", "Me.")]), min_rows=0)
    assert "near_duplicate" not in report.counts


def test_a_benchmark_item_is_named_by_row_and_item(write: Write) -> None:
    path = write([chat("Hi?", "Hello."), chat(QUESTION, "It is 441.")])
    report = check(path, min_rows=0, benchmarks=ITEMS)
    assert report.verdict == "accepted"
    assert positions(report, "benchmark_item") == [(2, "")]
    messages = {finding.code: finding.message for finding in report.warnings}
    assert "exam, exam.jsonl:1: 100 %" in messages["benchmark_item"]
    assert "exam, 1 of 2 items in 1 rows" in messages["benchmark_overlap"]


def test_escalated_items_refuse_the_file(write: Write) -> None:
    policy = ScreeningPolicy(benchmarks="escalate")
    report = check(write([chat(QUESTION, "441")]), min_rows=0, benchmarks=ITEMS, policy=policy)
    assert report.verdict == "rejected"
    assert positions(report, "benchmark_refused") == [(1, "")]


def test_rows_are_compared_in_batches_without_an_edge(write: Write) -> None:
    rows = [chat(f"What is {number}?", "A number.") for number in range(1, 1200)]
    rows[511] = rows[512] = rows[1198] = chat(QUESTION, "441")
    report = check(write(rows), min_rows=0, benchmarks=ITEMS)
    assert [row for row, _ in positions(report, "benchmark_item")] == [512, 513, 1199]


def test_a_secret_is_an_error_that_does_not_print_it(write: Write) -> None:
    report = check(write([chat("Which?", f"Use {KEY}.")]), min_rows=0)
    assert report.verdict == "rejected"
    assert positions(report, "secret_in_text") == [(1, "/messages/1")]
    assert KEY not in report.to_json().decode()


@pytest.mark.parametrize(
    ("policy", "code", "verdict"),
    [
        (ScreeningPolicy(), None, "accepted"),
        (ScreeningPolicy(personal="warn"), "personal_data", "accepted"),
        (ScreeningPolicy(personal="scrub"), "personal_data", "accepted"),
        (ScreeningPolicy(personal="block"), "personal_data_refused", "rejected"),
    ],
)
def test_personal_data_by_policy(
    write: Write, policy: ScreeningPolicy, code: str | None, verdict: str
) -> None:
    report = check(write([chat("Write to ann@mail.example", "Sent.")]), min_rows=0, policy=policy)
    assert report.verdict == verdict
    private = {code for code in report.counts if code.startswith("personal_data")}
    assert private == ({code} if code else set())
    assert "ann@" not in report.to_json().decode()


def test_scrubbing_masks_what_the_policy_names() -> None:
    call = {"function": {"name": "mail", "arguments": '{"to": "ann@mail.example"}'}}
    row = Conversation(
        [
            {"role": "user", "content": f"{KEY} for ann@mail.example"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ],
        [False, True],
        pair=("ann@mail.example", "ok"),
    )
    both = scrub(row, ScreeningPolicy(personal="scrub", secrets="scrub"))
    assert both.messages[0]["content"] == "[secret] for [email]"
    assert both.messages[1]["tool_calls"][0]["function"]["arguments"] == '{"to": "[email]"}'
    assert both.pair == ("[email]", "ok")
    assert (
        scrub(row, ScreeningPolicy(secrets="scrub"))
        .messages[0]["content"]
        .startswith("[secret] for a")
    )
    assert scrub(row, ScreeningPolicy()) is row


def test_the_report_lists_what_was_not_checked(write: Write) -> None:
    path = write([chat("Hi?", "Hello.")])
    plain = check(path, min_rows=0)
    assert plain.not_looked_for == (
        "benchmark items",
        "personal data",
        "names of people",
        "toxicity",
    )
    full = check(path, min_rows=0, policy=ScreeningPolicy(personal="warn"), benchmarks=ITEMS)
    assert full.not_looked_for == ("names of people", "toxicity")


def test_a_row_with_two_kinds_of_faults_counts_once(write: Write) -> None:
    policy = ScreeningPolicy(personal="block", benchmarks="escalate")
    row = chat(f"{QUESTION} ann@mail.example", f"441 {KEY}")
    report = check(write([row]), min_rows=0, benchmarks=ITEMS, policy=policy)
    assert report.error_count == 3
    assert report.rows_with_errors == 1


def test_method_dpo_the_rejected_answer_is_screened_as_well(write: Write) -> None:
    """The rejected answer is trained on as well."""
    row = {"prompt": "Which key?", "chosen": "None.", "rejected": f"It is {KEY}."}
    report = check(write([row]), min_rows=0)
    assert positions(report, "secret_in_text") == [(1, "/rejected")]
    messages = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    rejected = [messages[0], {"role": "assistant", "content": f"It is {KEY}."}]
    pair = Conversation(messages, [False, True], rejected=rejected)
    masked = scrub(pair, ScreeningPolicy(secrets="scrub")).rejected
    assert masked is not None
    assert masked[-1]["content"] == "It is [secret]."

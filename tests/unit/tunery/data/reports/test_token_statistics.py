"""Token counts of checked rows, and the faults that only show with a base model."""

from typing import Any

import pytest

from tunery.data.containers.row import Row
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Finding
from tunery.data.reports import token_statistics
from tunery.data.reports.token_statistics import SAMPLES, TokenStatistics
from tunery.data.tokens.tokenizer import Tokenizer


def conversation(answer: str = "Yo", **more: Any) -> Conversation:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": answer}]
    return Conversation(messages, [False, True], **more)


def add_all(statistics: TokenStatistics, *rows: Conversation) -> list[Finding]:
    """The findings about these rows, which are numbered from 1."""
    findings: list[Finding] = []
    for number, row in enumerate(rows, 1):
        findings += statistics.add(Row(number, number, b"{}"), row)
    return findings + statistics.flush()


def test_without_a_row_there_are_no_counts(tokenizer: Tokenizer) -> None:
    statistics = TokenStatistics(tokenizer)
    assert (statistics.flush(), statistics.counts()) == ([], None)


def test_counts_are_those_of_the_tokens(tokenizer: Tokenizer) -> None:
    statistics = TokenStatistics(tokenizer)
    assert add_all(statistics, conversation(), conversation("A much longer answer. " * 20)) == []
    counts = statistics.counts()
    assert counts is not None
    assert (counts.rows, counts.tokens) == (2, sum(statistics.lengths))
    assert counts.longest_row_tokens == max(statistics.lengths)
    assert sum(bar.rows for bar in counts.histogram) == 2
    assert 0 < counts.trainable_tokens < counts.tokens


def test_batches_do_not_change_the_counts(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [conversation(f"Answer {number}") for number in range(7)]
    whole, parts = TokenStatistics(tokenizer), TokenStatistics(tokenizer)
    add_all(whole, *rows)
    monkeypatch.setattr(token_statistics, "ENCODE_ROWS", 2)
    add_all(parts, *rows)
    assert parts.counts() == whole.counts()
    assert (parts.lengths, parts.samples) == (whole.lengths, whole.samples)


def test_a_length_at_the_edge_of_a_bin_belongs_to_it(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = TokenStatistics(tokenizer)
    add_all(probe, conversation())
    (length,) = probe.lengths
    for bins, upto in (((length, 64), length), ((length - 1, 64), 64), ((1,), length)):
        monkeypatch.setattr(token_statistics, "BINS", bins)
        statistics = TokenStatistics(tokenizer)
        add_all(statistics, conversation())
        counts = statistics.counts()
        assert counts is not None
        assert [(bar.upto, bar.rows) for bar in counts.histogram] == [(upto, 1)]


def test_a_row_that_is_too_long_is_named_by_its_number(tokenizer: Tokenizer) -> None:
    statistics = TokenStatistics(tokenizer, max_length=40)
    findings = add_all(statistics, conversation(), conversation("long answer " * 40))
    assert [(finding.row, finding.code) for finding in findings] == [(2, "row_too_long")]


def test_both_answers_of_a_preference_are_counted(tokenizer: Tokenizer) -> None:
    statistics = TokenStatistics(tokenizer)
    rejected = conversation("Go away").messages
    assert add_all(statistics, conversation(rejected=rejected)) == []
    alone = TokenStatistics(tokenizer)
    add_all(alone, conversation(), conversation("Go away"))
    both = sum(alone.lengths)  # they stay in one packed row
    counts = statistics.counts()
    assert counts is not None
    assert (list(statistics.lengths), counts.longest_row_tokens) == ([both], both)
    assert (counts.rows, counts.tokens) == (1, both)


def test_samples_show_the_first_rows_and_how_much_is_hidden(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_statistics, "SAMPLE_TOKENS_MAX", 5)
    statistics = TokenStatistics(tokenizer)
    add_all(statistics, *[conversation() for _ in range(SAMPLES + 2)])
    assert [sample.row for sample in statistics.samples] == list(range(1, SAMPLES + 1))
    assert statistics.samples[0].more == statistics.lengths[0] - 5
    assert not statistics.samples[0].pieces[0].learnt

"""Counts on disk: windows, answers across them, engines that are killed."""

from pathlib import Path

import pytest

from schemas.answers import AnswerUse
from services.engine.meter import AnswerMeter
from tunery.platform.answer_files import METER, uses_of
from tunery.work.engine import Asker, Spent

ASKER = Asker("acme", "key_1", "tiny")


def spent(read: int, written: int, cached: int = 0) -> Spent:
    return Spent(read, cached, written)


def counted(meter: AnswerMeter) -> list[AnswerUse]:
    """What all closed files count for the tenant."""
    return [use for path in meter.closed_files() for use in uses_of(path)["acme"]]


def tokens(uses: list[AnswerUse]) -> tuple[int, int, int, int]:
    names = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens")
    first, second, third, fourth = (sum(getattr(use, name) for use in uses) for name in names)
    return first, second, third, fourth


def test_the_newest_line_of_an_answer_counts(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    tally = meter.begin(ASKER)
    tally.note(spent(7, 1, cached=3))
    tally.note(spent(7, 2, cached=3))
    assert meter.closed_files() == []
    meter.close_file()
    (use,) = counted(meter)
    assert (use.key_id, use.model) == ("key_1", "tiny")
    assert tokens([use]) == (1, 7, 3, 2)


def test_an_answer_across_files_counts_once(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    tally = meter.begin(ASKER)
    for written in range(1, 6):
        tally.note(spent(7, written))
        meter.close_file()
    tally.end()
    assert len(meter.closed_files()) == 5
    assert tokens(counted(meter)) == (1, 7, 0, 5)


def test_what_was_in_memory_may_be_in_a_later_file_than_its_question(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    tally = meter.begin(ASKER)
    tally.note(spent(7, 1))
    meter.close_file()
    tally.note(spent(7, 2, cached=3))
    meter.close_file()
    assert [tokens([use]) for use in counted(meter)] == [(1, 7, 0, 1), (0, 0, 3, 1)]


def test_of_several_answers_to_one_question_the_question_counts_once(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    for first in (True, False, False):
        meter.begin(Asker("acme", "key_1", "tiny", first)).note(spent(7, 2))
    meter.close_file()
    assert tokens(counted(meter)) == (1, 7, 0, 6)


def test_what_a_killed_engine_had_noted_counts(tmp_path: Path) -> None:
    killed = AnswerMeter(tmp_path)
    killed.begin(ASKER).note(spent(7, 4))
    name = (tmp_path / METER).read_text()
    killed.close_file()
    killed.begin(ASKER).note(spent(5, 1))
    meter = AnswerMeter(tmp_path)
    assert (tmp_path / METER).read_text() == name
    meter.begin(ASKER).note(spent(1, 1))
    meter.close_file()
    assert tokens(counted(meter)) == (3, 13, 0, 6)


def test_a_number_never_comes_back(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    numbers = []
    for _ in range(3):
        meter.begin(ASKER).note(spent(1, 1))
        meter.close_file()
        numbers += [path.name for path in meter.closed_files()]
        for path in meter.closed_files():
            path.unlink()
        meter = AnswerMeter(tmp_path)
    assert len(set(numbers)) == len(numbers) >= 3


def test_a_line_that_was_cut_off_counts_nothing(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    meter.begin(ASKER).note(spent(7, 2))
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'[9,"acme",{"key')
    meter.close_file()
    assert tokens(counted(meter)) == (1, 7, 0, 2)


def test_without_room_on_disk_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = AnswerMeter(tmp_path).begin(ASKER)
    monkeypatch.setattr("services.engine.meter.os.write", lambda file, text: 0)
    with pytest.raises(OSError, match="no room"):
        tally.note(spent(1, 1))

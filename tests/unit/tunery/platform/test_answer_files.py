"""Files of counted tokens: those that a process left are closed, and no number comes back."""

import os
from pathlib import Path

from schemas.answers import USES_MAX
from services.engine.meter import AnswerMeter
from tests.unit.services.engine.test_meter import ASKER, spent
from tunery.platform.answer_files import close_left, commands_of, number_of, open_spool, spool_files
from tunery.work.engine import Asker


def test_what_a_process_left_is_closed_once(tmp_path: Path) -> None:
    close_left(tmp_path)
    assert spool_files(tmp_path) == [], "nothing was written"
    AnswerMeter(tmp_path).begin(ASKER).note(spent(7, 4))
    close_left(tmp_path)
    close_left(tmp_path)
    assert [number_of(path) for path in spool_files(tmp_path)] == [1, 2]
    for path in spool_files(tmp_path)[:-1]:
        path.unlink()
    AnswerMeter(tmp_path)
    assert [number_of(path) for path in spool_files(tmp_path)] == [2, 3]


def test_a_line_that_was_cut_off_is_not_counted(tmp_path: Path) -> None:
    AnswerMeter(tmp_path).begin(ASKER).note(spent(7, 4))
    (path,) = spool_files(tmp_path)
    with path.open("ab") as file:
        file.write(b'[0,"acme",{"key_id"')
    ((tenant, command),) = commands_of(path)
    assert (tenant, command.uses[0].completion_tokens) == ("acme", 4)


def test_many_uses_are_several_commands(tmp_path: Path) -> None:
    meter = AnswerMeter(tmp_path)
    for number in range(USES_MAX + 1):
        meter.begin(Asker("acme", f"key_{number}", "tiny")).note(spent(1, 1))
    (path,) = spool_files(tmp_path)
    assert [len(command.uses) for _, command in commands_of(path)] == [USES_MAX, 1]
    os.close(open_spool(tmp_path, 9))

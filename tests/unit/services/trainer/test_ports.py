"""Arguments of a process."""

from services.trainer.ports import NO_ACCESS, Access
from tunery.ranks.launching import RankLayout


def test_work_of_one_process_and_of_ranks_is_counted_by_its_processes() -> None:
    assert NO_ACCESS.processes == 1
    assert Access(ranks=RankLayout(6, range(4, 6))).processes == 2

"""Ranks of each node."""

from services.trainer.effect.gang import end_to_tell, ranks_of
from services.trainer.effect.gang_link import MemberEnd
from services.trainer.effect.process_end import ProcessEnd
from tests.unit.services.trainer.effect.gangs import MEMBERS


def test_ranks_are_numbered_over_the_members_in_the_order_of_the_lease() -> None:
    assert ranks_of(MEMBERS) == {"a": range(2), "b": range(2, 3)}
    assert ranks_of(MEMBERS[::-1]) == {"b": range(1), "a": range(1, 3)}


def test_the_first_member_is_forwarded_the_end_without_its_result() -> None:
    end = ProcessEnd("failed", "oom", "memory ran out", rank=2)
    assert end_to_tell(end) == MemberEnd("failed", "oom", "memory ran out", 2, is_left=False)

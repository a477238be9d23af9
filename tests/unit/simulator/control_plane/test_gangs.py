"""Messages between the members of a lease."""

from simulator.control_plane.gangs import SimGang


def test_the_first_end_of_a_member_counts() -> None:
    gang = SimGang(joined={"b", "c"})
    gang.end("b", "preempted", None)
    gang.lose("b")
    assert gang.ends == {"b": ("preempted", None)}
    assert gang.failed(("b", "c")) is None


def test_a_member_that_is_lost_is_named() -> None:
    gang = SimGang(joined={"b", "c"})
    gang.lose("c")
    assert gang.failed(("b", "c")) == ("c", "platform")
    assert gang.have_ended(("c",))
    assert not gang.have_ended(gang.joined)

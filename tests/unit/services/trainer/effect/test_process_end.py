"""An end that says nothing of other nodes is that of work on one."""

from services.trainer.effect.process_end import ProcessEnd


def test_an_end_is_reported_by_its_own_agent_unless_it_says_otherwise() -> None:
    end = ProcessEnd("failed", "platform", "x")
    assert (end.is_forwarded, end.is_left) == (False, False)
    assert (end.rank, end.faulty_node, end.result) == (None, None, None)

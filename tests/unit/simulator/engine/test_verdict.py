"""A verdict names each violated invariant once."""

from simulator.engine.verdict import Verdict


def test_invariants_are_named_once_whatever_was_seen() -> None:
    violations = ["money: 3 of 4", "money: 4 of 5", "order: at 12:30", "progress"]
    assert Verdict(violations).violated == {"money", "order", "progress"}
    assert Verdict().violated == frozenset()


def test_verdicts_share_nothing() -> None:
    first, second = Verdict(), Verdict()
    first.violations.append("money: gone")
    first.faults["crash"] = 1
    assert (second.violations, second.faults, second.trace) == ([], {}, [])

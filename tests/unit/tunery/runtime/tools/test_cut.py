"""Cuts through made-up histories, whose brokers' clocks may differ."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tunery.runtime.tools.cut import Cause, Mark, extended_cut, shortened_cut

PARTITIONS: Final = ("job/0", "job/1", "pool/0")
Log = Mapping[str, Sequence[Mark]]


class History(NamedTuple):
    """Records of partitions, and in which order all of them were written."""

    log: Log
    order: Sequence[Mark]


@st.composite
def histories(draw: st.DrawFn, skew_ms_max: int = 50) -> History:
    """Each record comes after the one that it follows from; clocks of brokers never go back."""
    skews = {name: draw(st.integers(0, skew_ms_max)) for name in PARTITIONS}
    log: dict[str, list[Mark]] = {name: [] for name in PARTITIONS}
    order: list[Mark] = []
    for now_ms in range(draw(st.integers(0, 30))):
        name = draw(st.sampled_from(PARTITIONS))
        cause = None
        if draw(st.booleans()) and order:
            followed = draw(st.sampled_from(order))
            cause = Cause(followed.name, followed.offset)
        order.append(Mark(name, len(log[name]), now_ms + skews[name], cause))
        log[name].append(order[-1])
    return History(log, order)


def is_consistent(log: Log, cut: Mapping[str, int]) -> bool:
    return all(
        mark.cause is None or mark.cause.offset < cut[mark.cause.name]
        for name, marks in log.items()
        for mark in marks[: cut[name]]
    )


def extended(
    history: History, ends: Mapping[str, int], limits: Mapping[str, int]
) -> dict[str, int]:
    """What `tunery backup` does with the ends that it timestamps, and the ends a while later."""
    causes: dict[str, int] = {}
    for name, end in ends.items():
        for mark in history.log[name][:end]:
            if mark.cause is not None:
                newest = causes.get(mark.cause.name, -1)
                causes[mark.cause.name] = max(newest, mark.cause.offset)
    timestamps = [mark.timestamp for name, end in ends.items() for mark in history.log[name][:end]]
    later = {name: history.log[name][end : limits[name]] for name, end in ends.items()}
    return extended_cut(ends, causes, later, max(timestamps, default=0))


@given(histories(), st.data())
def test_ends_that_were_read_one_after_the_other_become_a_consistent_cut(
    history: History, data: st.DataObject
) -> None:
    """Nothing that was there before the first reading is lost, whatever the clocks say."""
    read = {name: data.draw(st.integers(0, len(history.order)), name) for name in PARTITIONS}

    def ends_at(times: Mapping[str, int]) -> dict[str, int]:
        return {
            name: sum(mark.name == name for mark in history.order[: times[name]]) for name in times
        }

    ends, limits = ends_at(read), ends_at(dict.fromkeys(PARTITIONS, max(read.values())))
    cut = extended(history, ends, limits)
    assert is_consistent(history.log, cut)
    assert all(ends[name] <= cut[name] <= limits[name] for name in PARTITIONS)


@given(histories(), st.integers(0, 90))
def test_cut_at_a_moment_is_the_largest_consistent_one_that_has_nothing_later(
    history: History, until_ms: int
) -> None:
    ends = {name: len(marks) for name, marks in history.log.items()}
    cut = shortened_cut(ends, until_ms, lambda: history.order)
    assert is_consistent(history.log, cut)
    for name, marks in history.log.items():
        assert all(mark.timestamp <= until_ms for mark in marks[: cut[name]])
        for mark in marks[cut[name] : cut[name] + 1]:
            late = mark.timestamp > until_ms
            lacks = mark.cause is not None and mark.cause.offset >= cut[mark.cause.name]
            assert late or lacks


@given(histories(skew_ms_max=0), st.integers(0, 40))
def test_cut_at_a_moment_loses_nothing_before_it_where_clocks_agree(
    history: History, until_ms: int
) -> None:
    ends = {name: len(marks) for name, marks in history.log.items()}
    assert shortened_cut(ends, until_ms, lambda: history.order) == {
        name: sum(mark.timestamp <= until_ms for mark in marks)
        for name, marks in history.log.items()
    }

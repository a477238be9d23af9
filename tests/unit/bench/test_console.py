"""Figures of a page that was rounds several times."""

from bench.console import summary


def test_a_page_has_its_median_time_and_most_bytes() -> None:
    rounds = [{"ms": ms, "bytes": size} for ms, size in ((90.0, 10), (30.06, 12), (40.0, 11))]
    assert summary("list", rounds) == {"list_ms": 40.0, "list_bytes": 12}
    assert summary("list", rounds[:2]) == {"list_ms": 60.0, "list_bytes": 12}

"""Changes that may start a job sooner: each in one thing."""

from typing import Any

from services.gateway.jobs.domain.what_if import changed_bodies, higher_lanes


def test_each_change_differs_in_one_thing() -> None:
    body: dict[str, Any] = {
        "model": "m",
        "training": {"slots": 4, "n_epochs": 3, "rank": 8},
        "placement": {"domain": "rack-1", "domain_wait_minutes": 5, "spot": False},
    }
    bodies = {text: changed for _, text, changed in changed_bodies(body)}
    assert [*bodies] == [
        "With 2 of 4 slots",
        "With 1 of 4 slots",
        "With 1 of 3 epochs",
        "In any domain",
        "On spot machines too",
    ]
    assert bodies["With 2 of 4 slots"]["training"] == {"slots": 2, "n_epochs": 3, "rank": 8}
    assert bodies["In any domain"]["placement"]["domain_wait_minutes"] is None


def test_the_next_higher_lane_comes_first() -> None:
    assert higher_lanes("free") == ("standard", "premium")
    assert higher_lanes("premium") == ()

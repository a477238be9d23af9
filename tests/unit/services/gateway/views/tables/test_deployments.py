"""A deployment's row is found by its stage."""

from services.gateway.views.tables.deployments import deployment_key


def test_each_stage_of_a_series_has_a_row_of_its_own() -> None:
    stages = [deployment_key(series, stage) for series in "ab" for stage in ("x", "y")]
    assert len({*stages}) == 4

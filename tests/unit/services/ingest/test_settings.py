"""Settings of ingest from environment variables, and their bounds."""

import pytest
from pydantic import ValidationError

from services.ingest.settings import GIB, IngestSettings
from tunery.data.screening.screening import ScreeningPolicy


def test_every_choice_of_screening_reaches_the_policy() -> None:
    settings = IngestSettings(
        benchmarks="escalate",
        near_duplicates="remove",
        personal_data="scrub",
        secrets="scrub",
        toxic="block",
        toxic_percent=7,
        personal_model="presidio",
        toxicity_model="own:rate",
    )
    assert settings.policy == ScreeningPolicy(
        repeats="remove",
        benchmarks="escalate",
        personal="scrub",
        secrets="scrub",
        toxic="block",
        toxic_percent=7,
        personal_model="presidio",
        toxicity_model="own:rate",
    )


def test_variables_of_the_environment_set_and_unknown_ones_do_not_matter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TUNERY_INGEST_CONCURRENCY", "32")
    monkeypatch.setenv("TUNERY_INGEST_SOMETHING_ELSE", "1")
    assert IngestSettings().concurrency == 32


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", "0"),
        ("concurrency", "33"),
        ("work_ms_max", "999"),
        ("memory_bytes_max", str(GIB // 2 - 1)),
        ("toxic_percent", "0"),
        ("toxic_percent", "101"),
        ("benchmarks", "maybe"),
    ],
)
def test_values_out_of_bounds_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"TUNERY_INGEST_{name.upper()}", value)
    with pytest.raises(ValidationError, match=name):
        IngestSettings()


@pytest.mark.parametrize(("workers", "of_tenant"), [(1, 1), (2, 1), (8, 7)])
def test_security_m2_a_tenant_leaves_a_worker_for_others(workers: int, of_tenant: int) -> None:
    assert IngestSettings(concurrency=workers).of_tenant_max == of_tenant
    assert IngestSettings(concurrency=workers, tenant_concurrency=1).of_tenant_max == 1

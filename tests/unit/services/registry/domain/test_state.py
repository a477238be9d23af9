"""Versions that hold a stage now and before."""

from immutables import Map
from msgspec.structs import replace

from schemas.model import VersionTerms
from services.registry.domain.state import (
    ModelVersion,
    StageHolder,
    TenantModels,
    former_of,
    holder_key,
    holder_of,
)
from tests.unit.services.registry.domain.test_evolve import LINEAGE

VERSION = ModelVersion(
    published=True, terms=VersionTerms(model_id="m1", series="s", lineage=LINEAGE)
)


def models(holder: StageHolder, *model_ids: str) -> TenantModels:
    versions = Map(dict.fromkeys(model_ids, VERSION))
    if holder.model_id is not None:
        versions = versions.set(holder.model_id, replace(VERSION, stage="production"))
    return TenantModels(versions=versions, holders=Map({"production/s": holder}))


def test_a_stage_that_was_never_held_has_no_holder() -> None:
    assert holder_of(TenantModels(), "s", "production") == StageHolder(model_id=None)
    assert former_of(TenantModels(), "s", "production") is None


def test_stages_and_series_have_holders_of_their_own() -> None:
    held = models(StageHolder(model_id="m1"), "m1")
    assert holder_of(held, "s", "production").model_id == "m1"
    assert holder_of(held, "s", "staging").model_id is None
    assert holder_of(held, "t", "production").model_id is None
    assert holder_key("s", "staging") != holder_key("s", "production")


def test_the_latest_former_holder_is_the_newest_that_still_exists() -> None:
    holder = StageHolder(model_id="m4", former=("m1", "m2", "m3"))
    assert former_of(models(holder, "m1", "m2", "m3", "m4"), "s", "production") == "m3"
    assert former_of(models(holder, "m1", "m2", "m4"), "s", "production") == "m2"
    assert former_of(models(holder, "m4"), "s", "production") is None


def test_the_holder_itself_is_no_former_holder() -> None:
    holder = StageHolder(model_id="m2", former=("m1", "m2"))
    assert former_of(models(holder, "m1", "m2"), "s", "production") == "m1"

"""Given events of `model`, then versions, holders and permissions."""

from msgspec.structs import replace

from schemas.envelope import Context
from schemas.model import (
    CheckpointShared,
    CheckpointUnshared,
    Event,
    Lineage,
    Share,
    Stage,
    StageMoved,
    VersionDeleted,
    VersionFailed,
    VersionPublished,
    VersionSubmitted,
    VersionTerms,
)
from schemas.reasons import Failure, failing
from services.registry.domain.evolve import evolve
from services.registry.domain.state import FORMER_MAX, INITIAL, TenantModels, holder_of

LINEAGE = Lineage(
    job_id="ftjob-1",
    base_id="small",
    base_sha256="ab" * 32,
    dataset_version="v",
    training_sha256="ab" * 32,
    config_sha256="ab" * 32,
    steps=1,
    verdict="pass",
    scores_sha256="ab" * 32,
)
PUBLISHED = VersionPublished(
    files=(), quarantined=False, terms=VersionTerms(model_id="m1", series="s", lineage=LINEAGE)
)
SHARED = CheckpointShared(checkpoint_id="c", share=Share(permission_id="cp-1", project_id="other"))


def models_after(*events: Event) -> TenantModels:
    """The models of the tenant acme."""
    state = INITIAL
    for number, event in enumerate(events, 1):
        context = Context(at=1, key="acme", tenant="acme", command_id="c", seq=number)
        state = evolve(state, event, context)
    return state.tenants.get("acme", TenantModels())


def published(*model_ids: str) -> list[Event]:
    return [
        replace(PUBLISHED, terms=replace(PUBLISHED.terms, model_id=model_id))
        for model_id in model_ids
    ]


def promotion(
    model_id: str, replaced: str | None = None, stage: Stage = "production"
) -> StageMoved:
    return StageMoved(model_id=model_id, series="s", stage=stage, replaced=replaced, by="promotion")


def test_a_failed_publication_leaves_another_jobs_version() -> None:
    submitted = VersionSubmitted(
        adapter=(), terms=VersionTerms(model_id="m1", series="s", lineage=LINEAGE)
    )
    full = Failure(code="platform_error", reason=failing("publishing_failed"))
    failed = VersionFailed(model_id="m1", job_id="ftjob-1", failure=full)
    assert models_after(submitted, failed) == TenantModels()
    other = replace(failed, job_id="ftjob-2")
    assert "m1" in models_after(submitted, other).versions


def test_a_replaced_holder_goes_back_to_dev_and_is_remembered() -> None:
    models = models_after(*published("m1", "m2"), promotion("m1"), promotion("m2", "m1"))
    assert {name: version.stage for name, version in models.versions.items()} == {
        "m1": "dev",
        "m2": "production",
    }
    holder = holder_of(models, "s", "production")
    assert (holder.model_id, holder.former) == ("m2", ("m1",))


def test_a_version_that_moves_on_leaves_its_stage_vacant() -> None:
    models = models_after(*published("m1"), promotion("m1", stage="staging"), promotion("m1"))
    staging = holder_of(models, "s", "staging")
    assert (staging.model_id, staging.former) == (None, ("m1",))
    assert holder_of(models, "s", "production").model_id == "m1"


def test_a_rollback_forgets_what_came_after_the_version() -> None:
    names = ("m1", "m2", "m3")
    promoted = (promotion("m1"), promotion("m2", "m1"), promotion("m3", "m2"))
    back = StageMoved(model_id="m1", series="s", stage="production", replaced="m3", by="rollback")
    models = models_after(*published(*names), *promoted, back)
    holder = holder_of(models, "s", "production")
    assert (holder.model_id, holder.former) == ("m1", ())
    assert models.versions["m3"].stage == "dev"


def test_only_so_many_former_holders_are_remembered() -> None:
    names = [f"m{number}" for number in range(FORMER_MAX + 2)]
    moves = [promotion(name, before) for name, before in zip(names, [None, *names], strict=False)]
    holder = holder_of(models_after(*published(*names), *moves), "s", "production")
    assert holder.former == tuple(names[1:-1])


def test_events_of_a_version_that_is_unknown_change_nothing() -> None:
    assert models_after(promotion("m1"), VersionDeleted(model_id="m1")) == TenantModels()


def test_a_permission_is_there_until_it_is_revoked() -> None:
    gone = CheckpointUnshared(
        checkpoint_id="c", share=Share(permission_id="cp-1", project_id="other")
    )
    assert models_after(SHARED).shared["cp-1"].share.project_id == "other"
    assert models_after(SHARED, gone, gone) == TenantModels()

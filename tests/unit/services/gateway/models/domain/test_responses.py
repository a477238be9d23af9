"""Base models, versions and adapters as the API shows them."""

from msgspec.structs import replace

from schemas.model import BaseAdded, StageMoved
from schemas.training import BlobFile
from services.gateway.models.domain.responses import (
    adapter_response,
    base_response,
    download_files,
    model_response,
    permission_response,
)
from services.gateway.views.tables.models import BASES, MODELS, PermissionRow
from tests.unit.services.gateway.control_plane import BASE
from tests.unit.services.gateway.view_rows import folded, only
from tests.unit.services.gateway.views.projections.test_models import PUBLISHED

FILES = tuple(
    BlobFile(name=name, blob=f"blob/{name}", sha256="ab" * 32, bytes=5) for name in ("a", "b")
)
ROW = only(folded("model", replace(PUBLISHED, files=FILES)), MODELS)


def test_a_base_model_is_pinned_by_its_hash() -> None:
    shown = base_response(only(folded("model", BaseAdded(base=BASE), key="*"), BASES))
    assert (shown.id, shown.sha256, shown.type) == (BASE.base_id, BASE.sha256, "base")
    assert (shown.owned_by, shown.context_length) == ("tunery", 2_048)


def test_a_version_names_its_parent_its_job_and_its_stage() -> None:
    shown = model_response(ROW)
    assert (shown.parent, shown.job_id, shown.owned_by) == (BASE.base_id, "ftjob-1", "acme")
    assert (shown.stage, shown.verdict, shown.quarantined) == ("dev", "pass", False)
    assert shown.lineage["training_sha256"] == "ab" * 32


def test_a_moved_version_says_since_when_it_holds_its_stage() -> None:
    moved = StageMoved(model_id="m1", series="s", stage="staging", replaced=None, by="promotion")
    shown = model_response(only(folded("model", PUBLISHED, moved), MODELS))
    assert (shown.stage, shown.created, shown.stage_since) == (
        "staging",
        1_001_000,
        1_002_000,
    )


def test_an_adapter_offers_its_files_in_their_order() -> None:
    shown = adapter_response(ROW, {"b": "https://blobs/b", "a": "https://blobs/a"}, 60)
    assert [file.url for file in shown.files] == ["https://blobs/a", "https://blobs/b"]
    assert shown.base_model == f"{BASE.base_id}@sha256:{BASE.sha256}"


def test_a_file_without_a_url_and_a_url_without_a_file_are_left_out() -> None:
    shown = download_files(FILES, {"b": "https://blobs/b", "c": "https://blobs/c"})
    assert [file.name for file in shown] == ["b"]


def test_a_permission_names_the_tenant_that_has_it() -> None:
    row = PermissionRow(
        tenant="acme",
        id="cp-1",
        sequence=1,
        created_at=1_999,
        checkpoint_id="c",
        project_id="other",
    )
    shown = permission_response(row)
    assert (shown.id, shown.created_at, shown.project_id) == ("cp-1", 1_999, "other")

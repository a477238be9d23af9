"""Checkpoints as the API shows them."""

from msgspec.structs import replace

from schemas.training import BlobFile
from services.gateway.jobs.domain.checkpoint_responses import (
    checkpoint_files_response,
    checkpoint_response,
)
from services.gateway.views.tables.jobs import CheckpointRow
from tests.unit.services.gateway.jobs.domain.test_event_responses import STEP

FILES = tuple(
    BlobFile(name=name, blob=f"blob/{name}", sha256="ab" * 32, bytes=5)
    for name in ("adapter_model.safetensors", "optimizer.pt")
)
CHECKPOINT = CheckpointRow(
    tenant="acme",
    job_id="ftjob-1",
    id="ftckpt-1",
    sequence=1,
    created_at=1_999,
    attempt=1,
    step=3,
    tokens=600,
    trained_tokens=500,
    manifest_sha256="ab" * 32,
    bytes=10,
    files=FILES,
)


def test_a_checkpoint_is_named_after_its_model_and_step() -> None:
    shown = checkpoint_response(CHECKPOINT, "ft:tiny-llama:acme::12345678", None)
    assert shown.fine_tuned_model_checkpoint == "ft:tiny-llama:acme::12345678:ckpt-step-3"
    assert (shown.created_at, shown.trained_tokens) == (1_999, 500)


def test_metrics_are_those_of_the_step_while_its_telemetry_is_kept() -> None:
    assert checkpoint_response(CHECKPOINT, "m", None).metrics == {"step": 3}
    assert checkpoint_response(CHECKPOINT, "m", STEP).metrics == {
        "step": 3,
        "train_loss": STEP.loss,
        "train_mean_token_accuracy": STEP.accuracy,
    }


def test_a_validation_loss_is_shown_where_it_is_finite() -> None:
    step = replace(STEP, valid_loss=0.5, valid_accuracy=0.75)
    measured = checkpoint_response(CHECKPOINT, "m", step).metrics
    assert (measured["valid_loss"], measured["valid_mean_token_accuracy"]) == (0.5, 0.75)


def test_files_without_a_url_are_not_offered() -> None:
    urls = {"adapter_model.safetensors": "https://blobs/1"}
    shown = checkpoint_files_response(CHECKPOINT, urls, expires_at=60)
    assert [(file.name, file.url) for file in shown.files] == [*urls.items()]
    assert shown.expires_at == 60

"""A user's session with the `openai` package; it runs under every generation of the package.

`openai_script.py story` uploads, trains, pauses and downloads; `… unwrap SECRET` reads webhook
deliveries from stdin and verifies them. Both print one JSON object. OPENAI_BASE_URL and
OPENAI_API_KEY must be set.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import openai
from openai import OpenAI, Stream
from openai.types.fine_tuning import FineTuningJobEvent

MODEL = "tiny"
#: the first is OpenAI's: W&B's package is not installed at the server, which says so in an event
INTEGRATIONS: list[Any] = [
    {"type": "wandb", "wandb": {"project": "lamps", "tags": ["a"]}},
    {"type": "tensorboard"},
]
WAIT_S_MAX = 400
PART_BYTES = 1_500
TRAINING: dict[str, Any] = {
    "lora": {"rank": 4},
    "training": {"max_length": 128, "checkpoint_every_steps": 10, "learning_rate": 1e-3},
    "budget": {"max_gpu_hours": 10},
    "eval": {"prompts": ["What is two plus two?", "Who is captain?"]},
}


def rows(count: int = 48) -> bytes:
    """Short conversations, different for each generation of the package."""
    said = [
        {"role": "user", "content": "What is {n} plus {n} in " + openai.__version__ + "?"},
        {"role": "assistant", "content": "Together that is {m}, captain."},
    ]
    lines = (
        json.dumps(
            {
                "messages": [
                    {**message, "content": message["content"].format(n=n, m=2 * n)}
                    for message in said
                ]
            }
        )
        for n in range(count)
    )
    return "\n".join(lines).encode() + b"\n"


def until(look: Callable[[], Any], holds: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        value = look()
        if holds(value):
            return value
        assert time.monotonic() < deadline, value
        time.sleep(0.2)


def submit_job(client: OpenAI, file_id: str, epochs: int, **more: Any) -> Any:
    return client.fine_tuning.jobs.create(
        model=MODEL,
        training_file=file_id,
        method={
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": epochs, "batch_size": 1}},
        },
        extra_body=TRAINING,
        **more,
    )


def upload_rows(client: OpenAI) -> str:
    """Upload the same rows in one request and in parts; returns the id of the second file."""
    data = rows()
    whole = client.files.create(
        file=("rows.jsonl", data),
        purpose="fine-tune",
        expires_after={"anchor": "created_at", "seconds": 3_600},
    )
    assert whole.expires_at == whole.created_at + 3_600
    upload = client.uploads.upload_file_chunked(
        file=data,
        filename="rows.jsonl",
        bytes=len(data),
        mime_type="application/jsonl",
        purpose="fine-tune",
        part_size=PART_BYTES,
    )
    assert upload.status == "completed"
    assert upload.file is not None
    assert len(data) > 3 * PART_BYTES
    for file_id in (whole.id, upload.file.id):
        checked = client.files.wait_for_processing(file_id, poll_interval=0.2)
        assert checked.status == "processed", checked
        assert client.files.content(file_id).read() == data
    client.files.delete(whole.id)
    kept = [file.id for file in client.files.list(purpose="fine-tune", limit=1)]
    assert kept[0] == upload.file.id
    assert whole.id not in kept
    return upload.file.id


def stream_events(client: OpenAI, job_id: str) -> Iterator[FineTuningJobEvent]:
    """Server-sent events of a job, read with the package's own stream class."""
    stream: Stream[FineTuningJobEvent] = client.get(
        f"/fine_tuning/jobs/{job_id}/events",
        cast_to=FineTuningJobEvent,
        stream=True,
        stream_cls=Stream[FineTuningJobEvent],
        options={"params": {"stream": "true"}},
    )
    return iter(stream)


def train_with_pause(client: OpenAI, file_id: str) -> Any:
    """Train a job that is paused and resumed; every step must be among its events."""
    jobs = client.fine_tuning.jobs
    job = submit_job(
        client,
        file_id,
        8,
        suffix="sdk",
        seed=7,
        metadata={"run": openai.__version__},
        integrations=INTEGRATIONS,
    )
    assert job.seed == 7
    assert job.integrations[0].wandb.project == "lamps"
    steps = until(lambda: jobs.list_events(job.id, limit=5).data, lambda seen: is_step(seen[0]))
    assert steps[0].type == "metrics"
    jobs.pause(job.id)
    until(lambda: jobs.retrieve(job.id).status, lambda status: status == "paused")
    jobs.resume(job.id)
    events: list[Any] = list(stream_events(client, job.id))
    job = jobs.retrieve(job.id)
    assert job.status == "succeeded", job
    seen = {event.data["step"] for event in events if is_step(event)}
    assert seen == set(range(1, max(seen) + 1)), sorted(seen)
    listed = {event.id for event in jobs.list_events(job.id, limit=50)}
    assert listed <= {event.id for event in events}, "the stream lacks an event that the list has"
    checkpoints = list(jobs.checkpoints.list(job.id))
    assert checkpoints[0].fine_tuning_job_id == job.id
    return job


def is_step(event: Any) -> bool:
    return bool(event.type == "metrics" and event.data["step"] > 0)


def adapter_bytes(client: OpenAI, model_id: str) -> int:
    """Download the adapter's files, compare their hashes; returns their total size."""
    adapter: Any = client.get(f"/models/{quote(model_id, safe='')}/adapter", cast_to=object)
    total = 0
    for file in adapter["files"]:
        with urlopen(file["url"]) as answer:  # noqa: S310  # of our own server
            data = answer.read()
        assert sha256(data).hexdigest() == file["sha256"]
        total += len(data)
    return total


def check_errors(client: OpenAI, file_id: str) -> None:
    """Errors have the package's own classes, a code and a param."""
    jobs = client.fine_tuning.jobs
    dpo: Any = {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1}}}
    wrong = error_of(lambda: jobs.create(model=MODEL, training_file=file_id, method=dpo))
    assert isinstance(wrong, openai.BadRequestError)
    assert (wrong.code, wrong.param) == ("invalid_value", "training_file")  # it has no pairs
    assert wrong.request_id
    missing = error_of(lambda: client.models.retrieve("some/model"))
    assert isinstance(missing, openai.NotFoundError)
    upload = client.uploads.create(
        bytes=5, filename="a", mime_type="text/plain", purpose="fine-tune"
    )
    assert client.uploads.cancel(upload.id).status == "cancelled"


def check_webhook_endpoints(client: OpenAI) -> None:
    """Webhook endpoints, which the package has since its third generation."""
    hooks: Any = client.webhooks
    if not hasattr(hooks, "create"):
        return
    types = ["fine_tuning.job.failed"]
    endpoint = hooks.create(name="a", url="https://example.com/hook", event_types=types)
    assert endpoint.signing_secret.startswith("whsec_")
    assert endpoint.id in [hook.id for hook in hooks.list()]
    assert hooks.update(endpoint.id, name="b").name == "b"
    assert hooks.rotate_secret(endpoint.id).signing_secret != endpoint.signing_secret
    assert types[0] in hooks.event_types.list().data
    assert hooks.delete(endpoint.id).deleted


def run_story() -> dict[str, Any]:
    client = OpenAI()
    jobs = client.fine_tuning.jobs
    file_id = upload_rows(client)
    check_errors(client, file_id)
    check_webhook_endpoints(client)
    job = train_with_pause(client, file_id)
    result, events = until(lambda: jobs.retrieve(job.id).result_files, lambda files: len(files) > 1)
    answered: Any = client.get(f"/fine_tuning/jobs/{job.id}/answers", cast_to=object)
    assert [pair["prompt"] for pair in answered["data"]] == TRAINING["eval"]["prompts"]
    metrics = client.files.content(result).text.splitlines()
    assert metrics[0].startswith("step,train_loss,train_accuracy")
    assert client.files.retrieve(events).filename.startswith(f"{job.id}.events.out.tfevents.")
    assert client.files.content(events).read().count(b"train/loss") == len(metrics) - 1
    second = submit_job(client, file_id, 50, metadata={"run": "cancelled"})
    assert jobs.cancel(second.id).status == "cancelled"
    run = [entry.id for entry in jobs.list(limit=1)]
    assert run[:2] == [second.id, job.id]  # one page for each
    assert [entry.id for entry in jobs.list(metadata={"run": openai.__version__})] == [job.id]
    assert client.models.retrieve(job.fine_tuned_model).owned_by == job.organization_id
    assert job.fine_tuned_model in [model.id for model in client.models.list()]
    assert isinstance(error_of(lambda: jobs.cancel(job.id)), openai.ConflictError)
    return {
        "version": openai.__version__,
        "job": job.id,
        "cancelled": second.id,
        "model": job.fine_tuned_model,
        "metrics": len(metrics) - 1,
        "adapter_bytes": adapter_bytes(client, job.fine_tuned_model),
    }


def error_of(call: Callable[[], Any]) -> openai.APIStatusError | None:
    try:
        call()
    except openai.APIStatusError as refusal:
        return refusal
    return None


def unwrap(secret: str) -> dict[str, Any]:
    """Type and object id of each verified delivery; a changed body must fail verification."""
    client = OpenAI(webhook_secret=secret)
    events = []
    for delivery in json.load(sys.stdin):
        event: Any = client.webhooks.unwrap(delivery["body"], delivery["headers"])
        events.append([event.type, event.data.id])
        try:
            client.webhooks.unwrap(delivery["body"] + " ", delivery["headers"])
        except openai.InvalidWebhookSignatureError:
            continue
        raise AssertionError("a changed body was accepted")
    return {"events": events}


if __name__ == "__main__":
    print(json.dumps(run_story() if sys.argv[1] == "story" else unwrap(sys.argv[2])))

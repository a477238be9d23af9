"""Calls every fine-tuning method of the `openai` package and checks its responses and errors.

    OPENAI_BASE_URL=… OPENAI_API_KEY=… python openai_surface.py MODEL

It runs under every generation of the package. No job is trained: jobs wait, or are cancelled.
"""

import json
import sys
from collections.abc import Callable
from hashlib import md5
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import openai

client: Any = openai.OpenAI()  # the types of three generations differ
MODEL = sys.argv[1]


def assert_refused(
    kind: type[openai.APIStatusError],
    code: str,
    param: str | None,
    call: Callable[..., Any],
    *arguments: Any,
    **options: Any,
) -> None:
    """Assert that a call raises this error class, with code, field and a request id."""
    problem: Any = None
    try:
        call(*arguments, **options)
    except openai.APIStatusError as error:
        problem = error
    assert type(problem) is kind, problem
    assert (problem.code, problem.param) == (code, param), problem
    assert problem.request_id


def rows(count: int) -> bytes:
    """Rows that all differ: a file of equal rows would be rejected as duplicates."""
    said = [[f"What is {n} plus {n}?", f"Together that is {2 * n}."] for n in range(count)]
    turns = ([{"role": "user", "content": a}, {"role": "assistant", "content": b}] for a, b in said)
    return b"".join(json.dumps({"messages": item}).encode() + b"\n" for item in turns)


def upload_rows() -> str:
    file = client.files.create(file=rows(20), purpose="fine-tune")
    checked = client.files.wait_for_processing(file.id, poll_interval=0.05)
    assert checked.status == "processed"
    return str(file.id)


def files() -> None:
    first = upload_rows()
    named = client.files.create(file=("näme ü.jsonl", rows(11)), purpose="fine-tune")
    assert (named.filename, named.bytes, named.object) == ("näme ü.jsonl", len(rows(11)), "file")
    listed = [file.id for file in client.files.list(limit=1)]  # one page for each file
    assert listed[:2] == [named.id, first]
    assert [file.id for file in client.files.list(limit=1, order="asc")] == listed[::-1]
    assert list(client.files.list(purpose="batch")) == []
    assert client.files.content(first).content == rows(20)
    client.files.wait_for_processing(named.id, poll_interval=0.05)
    deleted = client.files.delete(named.id)
    assert (deleted.id, deleted.object, deleted.deleted) == (named.id, "file", True)
    assert_refused(openai.NotFoundError, "not_found", "id", client.files.retrieve, named.id)
    for purpose in ("assistants", "vision", "user_data", "evals"):
        wrong = {"file": rows(1), "purpose": purpose}
        create = client.files.create
        assert_refused(openai.BadRequestError, "invalid_value", "purpose", create, **wrong)


def headers() -> None:
    problem = client.files.with_raw_response.list().headers
    assert int(problem["x-ratelimit-limit-requests"]) > int(
        problem["x-ratelimit-remaining-requests"]
    )
    assert problem["openai-organization"]
    assert problem["openai-version"] == "2020-10-01"
    assert problem["x-request-id"].startswith("req_")


def uploads() -> None:
    data = rows(60)
    declared = {
        "bytes": len(data),
        "filename": "rows.jsonl",
        "mime_type": "text/plain",
        "purpose": "fine-tune",
    }
    upload = client.uploads.create(**declared)
    assert (upload.object, upload.status, upload.file) == ("upload", "pending", None)
    assert upload.expires_at == upload.created_at + 3_600
    pieces = (data[:1_000], data[1_000:])
    parts = [client.uploads.parts.create(upload.id, data=piece) for piece in pieces]
    assert {(item.object, item.upload_id) for item in parts} == {("upload.part", upload.id)}
    ids = [item.id for item in parts]
    complete = client.uploads.complete
    half = {"part_ids": ids[:1]}
    assert_refused(
        openai.BadRequestError, "invalid_request", "part_ids", complete, upload.id, **half
    )
    done = complete(upload.id, part_ids=ids, md5=md5(data, usedforsecurity=False).hexdigest())
    assert (done.status, done.file.bytes) == ("completed", len(data))
    assert client.files.content(done.file.id).content == data
    assert client.uploads.cancel(client.uploads.create(**declared).id).status == "cancelled"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_bytes(data)
        whole = client.uploads.upload_file_chunked(
            file=path, mime_type="text/plain", purpose="fine-tune", part_size=700
        )
    assert whole.file.filename == "rows.jsonl"


def jobs() -> None:
    file_id, calls = upload_rows(), client.fine_tuning.jobs
    job = calls.create(
        model=MODEL,
        training_file=file_id,
        suffix="my style",
        seed=5,
        metadata={"team": openai.__version__},
        method={"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 2}}},
        integrations=None,
        validation_file=None,
    )
    assert (job.object, job.seed, job.training_file) == ("fine_tuning.job", 5, file_id)
    assert (job.error, job.fine_tuned_model, job.finished_at) == (None, None, None)
    assert (job.result_files, job.trained_tokens, job.validation_file) == ([], None, None)
    assert (job.hyperparameters.n_epochs, job.hyperparameters.batch_size) == (2, "auto")
    assert job.method.supervised.hyperparameters.n_epochs == 2
    old = calls.create(model=MODEL, training_file=file_id, hyperparameters={"n_epochs": 1})
    assert [item.id for item in calls.list(limit=1)][:2] == [old.id, job.id]
    problem = [item.id for item in calls.list(metadata={"team": openai.__version__})]
    assert problem == [job.id]
    events = list(calls.list_events(job.id, limit=1))
    assert events[-1].message == f"Created fine-tuning job: {job.id}"
    assert list(calls.checkpoints.list(job.id)) == []
    assert calls.pause(old.id).status == "paused"
    assert calls.resume(old.id).status in ("validating_files", "queued")
    assert calls.cancel(old.id).status == "cancelled"
    assert calls.cancel(old.id).status == "cancelled"
    assert_refused(openai.ConflictError, "illegal_state", None, calls.resume, old.id)
    assert_refused(openai.NotFoundError, "not_found", "id", calls.retrieve, "ftjob-x")
    calls.cancel(job.id)


def submissions() -> None:
    file_id, create = upload_rows(), client.fine_tuning.jobs.create
    good = {"model": MODEL, "training_file": file_id}
    dpo = {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1}}}
    for kind, body, code, param in (
        (openai.NotFoundError, {"model": "gpt-4o"}, "model_not_found", "model"),
        (openai.NotFoundError, {"model": "ft:a:b::12345678"}, "model_not_found", "model"),
        (openai.NotFoundError, {"training_file": "file-x"}, "not_found", "training_file"),
        (openai.BadRequestError, {"method": {"type": "x"}}, "unsupported", "method.type"),
        (openai.BadRequestError, {"method": dpo}, "invalid_value", "training_file"),
        (openai.BadRequestError, {"suffix": "x" * 65}, "invalid_request", "suffix"),
        (openai.BadRequestError, {"extra_body": {"zzz": 1}}, "invalid_request", "zzz"),
        (
            openai.BadRequestError,
            {"hyperparameters": {"n_epochs": 51}},
            "invalid_value",
            "hyperparameters.n_epochs",
        ),
    ):
        assert_refused(kind, code, param, create, **{**good, **body})
    key = {"Idempotency-Key": f"surface-{openai.__version__}"}
    first = create(**good, seed=9, extra_headers=key)
    assert create(**good, seed=9, extra_headers=key).id == first.id
    other = {**good, "seed": 8, "extra_headers": key}
    assert_refused(openai.ConflictError, "idempotency_conflict", None, create, **other)
    client.fine_tuning.jobs.cancel(first.id)


def models() -> None:
    assert MODEL in [model.id for model in client.models.list()]
    model = client.models.retrieve(MODEL)
    assert (model.object, model.owned_by) == ("model", "tunery")
    missing = ("model_not_found", "model")
    assert_refused(openai.NotFoundError, *missing, client.models.retrieve, "org/none")
    assert_refused(openai.NotFoundError, *missing, client.models.delete, "ft:x::y")
    ask, question = client.chat.completions.create, {"role": "user", "content": "Hello"}
    assert_refused(openai.NotFoundError, *missing, ask, model="org/none", messages=[question])
    embed = client.embeddings.create
    assert_refused(openai.NotFoundError, *missing, embed, model="org/none", input="y")


def unsupported_routes() -> None:
    """Routes of OpenAI that do not exist here, an unknown key, and bad page parameters."""
    unknown = ("unknown_url", None)
    draw: Any = client.images.generate
    assert_refused(openai.NotFoundError, *unknown, draw, prompt="y")
    unauthenticated: Any = openai.OpenAI(api_key="nobody")
    assert_refused(openai.AuthenticationError, "invalid_api_key", None, unauthenticated.models.list)
    pages = client.fine_tuning.jobs.list
    assert_refused(openai.BadRequestError, "invalid_request", "limit", pages, limit=0)
    assert_refused(openai.NotFoundError, "not_found", "after", pages, after="ftjob-x")


def endpoints() -> None:
    """Webhook endpoints, which the package has since its third generation."""
    hooks = client.webhooks
    if not hasattr(hooks, "create"):
        return
    types = ["fine_tuning.job.failed"]
    hook = hooks.create(name="a", url="https://example.com/hook", event_types=types)
    assert hook.signing_secret.rstrip("=").endswith(hook.signing_secret_hint.lstrip("…"))
    assert hook.updated_at == hook.created_at
    assert [item.id for item in hooks.list()] == [hook.id]
    assert hooks.retrieve(hook.id).url == hook.url
    assert hooks.update(hook.id, name="b").name == "b"
    assert hooks.rotate_secret(hook.id).signing_secret != hook.signing_secret
    assert set(types) < set(hooks.event_types.list().data)
    assert hooks.delete(hook.id).object == "webhook_endpoint.deleted"


if __name__ == "__main__":
    for part in (files, headers, uploads, jobs, submissions, models, unsupported_routes, endpoints):
        part()
    print(openai.__version__)

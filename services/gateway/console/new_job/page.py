"""From a file to a job: each step is a call that can be repeated with curl."""

import json
import shlex
from collections.abc import Iterator, Mapping
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote

from starlette.datastructures import FormData
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from services.gateway.console.calls import FILES, JOBS, CallRefused, path_to, refusal_of
from services.gateway.console.visits import ROOT, Visit, form_of, route
from services.gateway.console.words import number
from tunery.plan.methods import methods_of_rows, rows_of_dialect

#: fields that the `openai` package has arguments for
OPENAI: Final = frozenset({"model", "training_file", "suffix", "method"})
#: option of the command line by the field's path, of a hyperparameter by its name
OPTIONS: Final = {
    "model": "--model",
    "training_file": "--file",
    "suffix": "--suffix",
    "method.type": "--method",
    "n_epochs": "--epochs",
    "batch_size": "--batch-size",
    "learning_rate_multiplier": "--learning-rate-multiplier",
}
UNSAID: Final = ("method.type", "supervised")  # it is the default

UPLOADS: Final = "/v1/uploads"
PART_BYTES: Final = 8 * 1024 * 1024  # what a broken connection loses at most
FINDINGS_MAX: Final = 100
FILES_SHOWN: Final = 50
ROWS_SHOWN: Final = 5
#: settings of the form: name → where it is in the body of a submission, and its type
HYPERPARAMETERS: Final[dict[str, type[int] | type[float]]] = {
    "n_epochs": int,
    "batch_size": int,
    "learning_rate_multiplier": float,
}


@route("/new")
async def show(visit: Visit) -> Response:
    file_id = visit.request.query_params.get("file", "")
    files = await visit.api.get(FILES, purpose="fine-tune", limit=FILES_SHOWN)
    values: dict[str, Any] = {"files": files["data"], "file": None, "bases": [], "once": ""}
    if file_id:
        bases = await visit.api.get("/v1/models", type="base")
        values |= await _file(visit, file_id) | {"bases": bases["data"], "once": token_hex(16)}
    return visit.page("new_job/new_job.html", **values)


@route("/new/report")
async def report(visit: Visit) -> Response:
    """Show the report on a file; the page repeats the call while the file is being validated."""
    file_id = visit.request.query_params.get("file", "")
    values = await _file(visit, file_id)
    shown = visit.page("new_job/report.html", **values)
    if values["checked"]["status"] != "pending":
        shown.headers["hx-trigger"] = "checked"  # the estimate is updated
    return shown


async def _file(visit: Visit, file_id: str) -> dict[str, Any]:
    path = path_to(FILES, file_id)
    file = await visit.api.get(path)
    checked = await visit.api.get(f"{path}/validation")
    report = checked.get("report") or {}
    errors = report.get("errors", [])
    findings = errors + report.get("warnings", [])
    before = number(visit.request.query_params.get("before", "0"), int)
    before = max(0, before) if isinstance(before, int) else 0
    kind = rows_of_dialect(checked.get("dialect", "chat"))
    return {
        "file": file,
        "methods": methods_of_rows(kind),
        "checked": checked,
        "findings": findings[before : before + FINDINGS_MAX],
        "before": before,
        "found": len(findings),
        "errors": len(errors),
    }


@route("/new/file", "POST")
async def upload(visit: Visit) -> Response:
    """Upload the file of a browser without the script, in one request."""
    return visit.go(_address((await _passed_on(visit, FILES))["id"]))


@route("/new/uploads", "POST")
async def begin(visit: Visit) -> Response:
    """Begin an upload in parts, which the script continues after a cut."""
    form = await visit.form()
    body = {
        "filename": form.get("filename", ""),
        "bytes": number(form.get("bytes", ""), int),
        "mime_type": "application/octet-stream",
        "purpose": form.get("purpose", ""),
    }
    begun = await visit.api.post(UPLOADS, body)
    return JSONResponse({"id": begun["id"], "part_bytes": PART_BYTES})


@route("/new/uploads/{upload_id}/parts", "POST")
async def add_part(visit: Visit) -> Response:
    part = await _passed_on(visit, f"{visit.named(UPLOADS)}/parts")
    return JSONResponse({"id": part["id"]})


@route("/new/uploads/{upload_id}/complete", "POST")
async def complete(visit: Visit) -> Response:
    """Put the file together; the script opens the address of its report."""
    body = {"part_ids": [*map(str, (await form_of(visit.request)).getlist("part"))]}
    done = await visit.api.post(f"{visit.named(UPLOADS)}/complete", body)
    return JSONResponse({"address": _address(done["file"]["id"])})


async def _passed_on(visit: Visit, path: str) -> Any:
    """Pass a form with a file on to the API as its bytes arrive. Raises CallRefused."""
    names = ("content-type", "content-length")
    headers = {n: visit.request.headers[n] for n in names if n in visit.request.headers}
    stream = visit.request.stream()
    response = await visit.api.send("POST", path, content=stream, headers=headers)
    if not response.is_success:
        raise refusal_of(response)
    return response.json()


def _address(file_id: str) -> str:
    return f"{ROOT}/new?file={quote(file_id, safe='')}"


@route("/new/estimate", "POST")
async def estimate(visit: Visit) -> Response:
    """Estimate time, memory and price of the form's settings; nothing is recorded."""
    body = body_of(await form_of(visit.request))
    values: dict[str, Any] = {"estimate": None, "plan": None, "refusal": None}
    values["snippets"] = snippets(body)
    try:
        values["estimate"] = await visit.api.post(f"{JOBS}/estimate", body)
        values["plan"] = await visit.api.post(f"{JOBS}/plan", body)
    except CallRefused as refusal:
        if refusal.status in (401, 403):
            raise
        values["refusal"] = refusal.message
    return visit.page("new_job/estimate.html", **values)


@route("/new/rows")
async def rows(visit: Visit) -> Response:
    """Show the first rows of a file as tokens of a base model, and which of them are learnt."""
    query = visit.request.query_params
    values: dict[str, Any] = {"rows": [], "problems": [], "refusal": None}
    body = {name: query.get(name, "") for name in ("model", "training_file")}
    body["reasoning"] = query.get("reasoning", "keep")
    try:
        shown = await visit.api.post("/v1/fine_tuning/preview", {**body, "rows": ROWS_SHOWN})
        values |= {"rows": shown["data"], "problems": shown["problems"]}
    except CallRefused as refusal:
        if refusal.status in (401, 403):
            raise
        values["refusal"] = refusal.message
    return visit.page("new_job/rows.html", file_id=body["training_file"], **values)


@route("/new", "POST")
async def submit(visit: Visit) -> Response:
    """Submit the job once, however often the button is pressed."""
    form = await form_of(visit.request)
    once = {"Idempotency-Key": str(form.get("once", ""))}
    job = await visit.api.post(JOBS, body_of(form), **once)
    return visit.go(path_to(f"{ROOT}/jobs", job["id"]))


def body_of(form: FormData) -> dict[str, Any]:
    """Return the body of a submission. The service chooses what is left empty."""
    texts = {name: str(value).strip() for name, value in form.items() if str(value).strip()}
    hyper = {
        name: number(texts[name], kind) for name, kind in HYPERPARAMETERS.items() if name in texts
    }
    method = texts.get("method", "supervised")
    body: dict[str, Any] = {
        "model": texts.get("model", ""),
        "training_file": texts.get("training_file", ""),
        "method": {"type": method, method: {"hyperparameters": hyper}},
    }
    if "suffix" in texts:
        body["suffix"] = texts["suffix"]
    if "rank" in texts:
        body["lora"] = {"rank": number(texts["rank"], int)}
    if texts.get("reasoning", "keep") != "keep":
        body["training"] = {"reasoning": texts["reasoning"]}
    return body


ROUTES: Final[tuple[Route, ...]] = (
    show,
    report,
    upload,
    begin,
    add_part,
    complete,
    estimate,
    rows,
    submit,
)


def snippets(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the same submission for each tool. Addresses and keys come from the environment."""
    return {"curl": _curl(body), "Python": _python(body), "the command line": _command(body)}


def _curl(body: Mapping[str, Any]) -> str:
    return f"""\
curl $OPENAI_BASE_URL/fine_tuning/jobs -H "Authorization: Bearer $OPENAI_API_KEY" \\
  -H "Content-Type: application/json" -d @- <<'BODY'
{json.dumps(body, indent=2)}
BODY"""


def _python(body: Mapping[str, Any]) -> str:
    own = {name: value for name, value in body.items() if name not in OPENAI}
    lines = [f"    {name}={value!r}," for name, value in body.items() if name in OPENAI]
    lines += [f"    extra_body={own!r},"] if own else []
    return "\n".join(
        ("from openai import OpenAI", "", "job = OpenAI().fine_tuning.jobs.create(", *lines, ")")
    )


def _command(body: Mapping[str, Any]) -> str:
    words = ["tunery", "job", "submit"]
    for name, value in _flat(body):
        if (name, value) == UNSAID:
            continue
        option = OPTIONS.get(name.rpartition(".hyperparameters.")[2])
        words += [option, str(value)] if option else ["--set", f"{name}={json.dumps(value)}"]
    return shlex.join(words)


def _flat(body: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of a body by their paths."""
    for name, value in body.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield path + name, value

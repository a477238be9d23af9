"""Fine-tuned versions: where they come from, which stage they hold, and their files."""

from itertools import groupby
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.routing import Route

from services.gateway.console.calls import JOBS, CallRefused, path_to
from services.gateway.console.visits import NO_PAGE, ROOT, Visit, route

MODELS: Final = "/v1/models"
STAGES: Final = ("staging", "production")
CHANGES: Final = frozenset({"promote", "rollback", "approve", "gate"})


@route("/models")
async def show(visit: Visit) -> Response:
    """List versions by their series, and the base models that can be trained."""
    listed = (await visit.api.get(MODELS))["data"]
    versions = [each for each in listed if each["type"] == "fine-tuned"]
    bases = [each for each in listed if each["type"] == "base"]
    versions.sort(key=lambda each: (each["series"], -each["created"]))
    series = [[*rows] for _, rows in groupby(versions, key=lambda each: each["series"])]
    series.sort(key=lambda rows: -rows[0]["created"])
    return visit.page("models/models.html", series=series, bases=bases)


@route("/models/{model_id:path}/files")
async def files(visit: Visit) -> Response:
    """List the files of a version, each with the API's own address that works for an hour."""
    adapter = await visit.api.get(f"{visit.named(MODELS)}/adapter")
    listed = [{**each, "path": urlsplit(each["url"]).path} for each in adapter["files"]]
    return visit.page("models/files.html", adapter=adapter, files=listed)


@route("/models/{model_id:path}/{change}", "POST")
async def change(visit: Visit) -> Response:
    """Promote a version, return its stage to the one before it, approve it, run its gate again."""
    name = visit.request.path_params["change"]
    if name not in CHANGES:
        raise NO_PAGE
    form = await visit.form()
    body: dict[str, Any] | None = None if name == "gate" else {"stage": form.get("stage", "")}
    if body is not None and name == "promote":
        body["expected"] = form.get("expected")  # a later promotion by somebody else is not undone
    changed = await visit.api.post(f"{visit.named(MODELS)}/{name}", body)
    if name == "gate":
        return visit.go(path_to(f"{ROOT}/jobs", changed["id"]))
    return visit.go(visit.named(f"{ROOT}/models"))


@route("/models/{model_id:path}")
async def version(visit: Visit) -> Response:
    """Show a version: its inputs, its gate, who holds which stage, and what happened to it."""
    path = visit.named(MODELS)
    model = await visit.api.get(path)
    if model["type"] != "fine-tuned":
        raise CallRefused(404, "not_found", "This is a base model: it has no stages.")
    history = (await visit.api.get(f"{path}/history"))["data"]
    versions = (await visit.api.get(MODELS, type="fine-tuned"))["data"]
    rules = (await visit.api.get_all(rules="/v1/approval_rules"))["rules"]
    line = [each for each in versions if each["series"] == model["series"]]
    holders = {stage: next((v for v in line if v["stage"] == stage), None) for stage in STAGES}
    needed = {rule["id"]: rule["required"] for rule in rules or ()}
    try:
        job = await visit.api.get(path_to(JOBS, model["job_id"]))
    except CallRefused as refusal:
        if refusal.status not in (403, 404):
            raise
        job = None
    values = {"holders": holders, "needed": needed, "history": history, "job": job}
    return visit.page("models/version.html", model=model, **values)


ROUTES: Final[tuple[Route, ...]] = (show, files, change, version)

"""`tunery model`: fine-tuned versions, their stages, their files."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api, _model_exports, _options
from tunery.cli._engine_check import check_engine, row_lines
from tunery.cli._job_view import gate_lines
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.work.engine_rows import ENGINES

if TYPE_CHECKING:
    from tunery.client import Api
    from tunery.client.shapes import ModelObject

# The folder of a downloaded adapter, made such that libraries find its base model.

CONFIG: Final = "adapter_config.json"
BASE: Final = "base"  # next to the adapter, where `--with-base` puts the base model


def name_base(folder: Path, base: str, revision: str | None) -> None:
    """Let `AutoPeftModelForCausalLM.from_pretrained(folder)` load this base model.

    base: name at a hub, or an absolute folder. revision: commit at the hub.
    """
    path = folder / CONFIG
    config = json.loads(path.read_bytes())
    config |= {"base_model_name_or_path": base, "revision": revision}
    text = json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)
    path.write_text(f"{text}\n", encoding="utf-8")


def base_folder(folder: Path) -> Path:
    """Return the folder of an adapter's base model. Raises LocalError where there is none.

    The one next to the adapter comes first: the name in the configuration is a path of the machine
    and the folder that the adapter was downloaded to.
    """
    if (folder / BASE).is_dir():
        return folder / BASE
    try:
        named = Path(json.loads((folder / CONFIG).read_bytes())["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LocalError(
            f"{folder} has no {CONFIG} that names a base model",
            "download the adapter with `tunery model download MODEL FOLDER --with-base`",
        ) from error
    if not named.is_dir():
        raise LocalError(
            f"the base model {named} is not on this machine",
            "name its folder with --base FOLDER, or download the adapter with --with-base",
        )
    return named


STAGES = ("staging", "production")
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
EPILOG = """\
\b
Examples:
  tunery model list
  tunery model show ft:smollm2-135m-instruct:local:demo:1a2b3c4d
  tunery model promote ft:smollm2-135m-instruct:local:demo:1a2b3c4d staging
  tunery model import ./their-adapter --base smollm2-135m-instruct --suffix theirs
  tunery model download ft:smollm2-135m-instruct:local:demo:1a2b3c4d ./adapter
  tunery model download ft:smollm2-135m-instruct:local:demo:1a2b3c4d ./adapter --with-base
  tunery model approve ft:smollm2-135m-instruct:local:demo:1a2b3c4d production
  tunery model approvals production --required 2
  tunery model history ft:smollm2-135m-instruct:local:demo:1a2b3c4d
  tunery model export ./adapter ./merged --dtype bfloat16
  tunery model export ./adapter ./model.gguf --format gguf
  tunery model export ./adapter ./artifact --format oci
  tunery model register ./adapter --server http://127.0.0.1:5000 --alias champion
  tunery model where ./adapter
  tunery model serve --check --engine vllm --server http://127.0.0.1:8000
  tunery model verify ./adapter
  tunery model verify ./adapter --key tunery-public.pem
  tunery model rollback ft:smollm2-135m-instruct:local:demo:1a2b3c4d production
  tunery model delete ft:smollm2-135m-instruct:local:demo:1a2b3c4d
  tunery model restore ft:smollm2-135m-instruct:local:demo:1a2b3c4d
"""


@click.group("model", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """List, import, promote, roll back, delete, download, move, export and verify models."""


def _stage(model: "ModelObject") -> str:
    """The stage of a version, or why it has none."""
    if (until := model.get("restorable_until")) is not None:
        return f"deleted, erased {_api.moment(until)}"
    return "quarantined" if model["quarantined"] else model["stage"]


@command.command("list")
@click.option("--deleted", is_flag=True, help="Those that were deleted and can be restored.")
@_api.listed(
    {
        "model": "id",
        "stage": _stage,
        "gate": "verdict",
        "base": "parent",
        "job": "job_id",
        "created": lambda model: _api.moment(model["created"]),
    }
)
def list_models(api: "Api", deleted: bool) -> Any:
    """List your fine-tuned versions, newest first."""
    return api.models("fine-tuned", deleted=str(deleted).lower())


@command.command("show")
@click.argument("model_id")
@_api.asking
def show(api: "Api", model_id: str, as_json: bool) -> None:
    """Show a model with its lineage."""
    model = api.model(model_id)
    job_id = model.get("job_id") if model.get("type") == "fine-tuned" else None
    gate = (api.job(model["gate_job_id"])["gate"] or {}) if job_id else {}
    fields = ("id", "type", "stage", "verdict", "parent", "job_id", "sha256")
    known = {name: model.get(name) for name in fields}
    known["quarantined"] = "yes: it cannot be promoted" if model.get("quarantined") else None
    lineage = dict(model.get("lineage") or {})
    computed = {f"environment.{key}": text for key, text in lineage.pop("environment", {}).items()}
    more = {name: value for name, value in {**lineage, **computed}.items() if name not in known}
    shown = {"gate": "; ".join(gate.get("reasons") or ()) or None, **dict(gate_lines(gate))}
    _api.show_one(model, as_json, (known | shown | more).items())


@command.command("import")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option("--base", required=True, help="The base model that it is an adapter of.")
@click.option("--suffix", help="Part of the name of the version that it becomes.")
@click.option("--validation-file", help="A file of yours, on whose rows the gate compares it.")
@_api.shown(lambda job: [("job", job["id"]), ("model", job["model"])])
def import_adapter(
    api: "Api", folder: Path, base: str, suffix: str | None, validation_file: str | None
) -> Any:
    """Import the LoRA adapter in FOLDER, as PEFT saved it elsewhere, in files of safetensors.

    The gate compares it with its base model, in a job that `tunery job watch JOB` follows. Then it
    is a version like any other.
    """
    if not (folder / WEIGHTS).is_file() and (folder / PICKLED).is_file():
        text = f"{folder / PICKLED} is a pickle, which can run code"
        raise LocalError(text, "save the adapter with save_pretrained(…, safe_serialization=True)")
    values = {"model": base, "suffix": suffix, "validation_file": validation_file}
    try:
        fields = {name: value for name, value in values.items() if value is not None}
        fields["config"] = (folder / CONFIG).read_text(encoding="utf-8")
        with (folder / WEIGHTS).open("rb") as stream:
            form = {"file": (WEIGHTS, stream)}
            return api.write("POST", "models", "import", data=fields, files=form)
    except OSError as error:
        text = f"{error.filename or folder} cannot be read: {error.strerror}"
        raise LocalError(text, "name the folder of an adapter that PEFT saved") from None


def _stage_fields(model: Any) -> list[tuple[str, Any]]:
    return [("model", model["id"]), ("stage", model["stage"])]


@command.command("promote")
@click.argument("model_id")
@click.argument("stage", type=click.Choice(["dev", "staging", "production", "archived"]))
@click.option("--expected", help="The version that must be in the stage now. [the one that is]")
@_api.shown(_stage_fields)
def promote(api: "Api", model_id: str, stage: str, expected: str | None) -> Any:
    """Move a version to a stage. Fails when another move came first."""
    if expected is None and stage in ("staging", "production"):
        series = api.model(model_id).get("series")
        versions = [
            version for version in api.models("fine-tuned") if version.get("series") == series
        ]
        held = [version["id"] for version in versions if version["stage"] == stage]
        expected = held[0] if held else None
    return api.promote(model_id, stage, expected)


@command.command("rollback")
@click.argument("model_id")
@click.argument("stage", type=click.Choice(STAGES))
@_api.shown(_stage_fields)
def rollback(api: "Api", model_id: str, stage: str) -> Any:
    """Take MODEL_ID out of a stage; the previous version returns to it."""
    return api.roll_back(model_id, stage)


@command.command("delete")
@click.argument("model_id")
@click.option("--erase", is_flag=True, help="Erase its files at once; it cannot be restored.")
@_api.asking
def delete(api: "Api", model_id: str, erase: bool, as_json: bool) -> None:
    """Delete a version. For 30 days it can be restored and is billed; then its files are erased."""
    api.write("DELETE", "models", model_id, params={"erase": str(erase).lower()})
    deleted = {"id": model_id, "deleted": True, "erased": erase}
    restore = f"within 30 days: tunery model restore {model_id}; billed until then, or --erase"
    how = "erased" if erase else f"deleted; {restore}"
    _api.show_one(deleted, as_json, [("model", model_id), ("result", how)])


@command.command("restore")
@click.argument("model_id")
@_api.shown(_stage_fields)
def restore(api: "Api", model_id: str) -> Any:
    """Restore a deleted version, as it was."""
    return api.post("models", model_id, "restore")


@command.command("approve")
@click.argument("model_id")
@click.argument("stage", type=click.Choice(STAGES))
@_api.asking
def approve(api: "Api", model_id: str, stage: str, as_json: bool) -> None:
    """Agree that a version is promoted to a stage. Its author's key cannot."""
    model = api.post("models", model_id, "approve", stage=stage)
    _api.show_one(model, as_json, [("model", model["id"]), ("approved for", stage)])


@command.command("approvals")
@click.argument("stage", required=False, type=click.Choice(STAGES))
@click.option("--required", type=click.IntRange(0, 100), help="How many a promotion needs.")
@click.option("--approver", "approvers", multiple=True, help="Id of a key that counts; repeatable.")
@_api.asking
def approvals(
    api: "Api",
    stage: str | None,
    required: int | None,
    approvers: tuple[str, ...],
    as_json: bool,
) -> None:
    """Show the approvals that promotions need, or set those of STAGE with --required."""
    if (stage is None) != (required is None):
        raise click.UsageError("STAGE and --required belong together; give both or none.")
    if stage is not None and required is not None:
        api.post("approval_rules", stage=stage, required=required, approvers=list(approvers))
    rules = api.get("approval_rules")["data"]
    _api.show(
        rules,
        as_json,
        {
            "stage": "id",
            "required": lambda rule: str(rule["required"]),
            "approvers": lambda rule: ", ".join(rule["approvers"]) or "every key but the author's",
        },
    )


@command.command("history")
@click.argument("model_id")
@_api.listed(
    {
        "at": lambda change: _api.moment(change["created_at"]),
        "change": "change",
        "stage": "stage",
        "key": lambda change: change["key_id"] or "",
    }
)
def history(api: "Api", model_id: str) -> Any:
    """Show the stages and approvals of a version, the oldest first, and who asked for them."""
    return api.get("models", model_id, "history")["data"]


@command.command("download")
@click.argument("model_id")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--base", help="Its base model: a folder, or a name at a hub. [its public name]")
@click.option(
    "--with-base", is_flag=True, help="Also download its base, if the operator shares it."
)
@_api.asking
def download(
    api: "Api",
    model_id: str,
    folder: Path,
    base: str | None,
    with_base: bool,
    as_json: bool,
) -> None:
    """Download the files of an adapter or a whole model into FOLDER, each checked by its SHA-256.

    A whole model needs no base. In the adapter_config.json of an adapter the base model is then
    named where it is at hand, so that AutoPeftModelForCausalLM.from_pretrained(FOLDER) loads both.
    """
    if base is not None and with_base:
        raise click.UsageError("--base and --with-base exclude each other; choose one.")
    adapter = api.adapter(model_id)
    is_whole = adapter.get("format") == "transformers"
    if is_whole and (base is not None or with_base):
        text = f"{model_id} has all its weights and needs no base model."
        raise LocalError(text, "Leave --base and --with-base out.")
    folder.mkdir(parents=True, exist_ok=True)
    for file in adapter["files"]:
        api.fetch(file, _target(folder, file))
    if not is_whole:
        _name_base(api, model_id.split(":")[1], folder, base, with_base)
    _api.show(
        adapter["files"],
        as_json,
        {
            "file": lambda file: str(_target(folder, file)),
            "size": lambda file: _api.size(file["bytes"]),
            "sha256": "sha256",
        },
    )


@command.command("export")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "kind",
    type=click.Choice(_model_exports.FORMATS),
    default="transformers",
    show_default=True,
    help="One model, a file of llama.cpp (of that, the adapter or its base), or an OCI artifact.",
)
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16"]),
    default="float32",
    show_default=True,
    help="How merged weights are stored; they are added in 32 bits.",
)
@click.option(
    "--base",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder of its base model. [as adapter_config.json names it]",
)
@_options.as_json
def export(
    folder: Path, target: Path, kind: str, dtype: str, base: Path | None, as_json: bool
) -> None:
    """Write a downloaded adapter in another format to TARGET, which must not exist.

    As `transformers` it is one model with its base; what was written is read again, and its answers
    are compared with those of base and adapter. `gguf` is one file of that for llama.cpp,
    `gguf-adapter` and `gguf-base` are the adapter and its base model alone. `oci` is a folder in
    the image layout of OCI, with the files as they are.
    """
    if kind == "oci":
        digest = _model_exports.write_oci(folder, target)
        written: dict[str, Any] = {"folder": str(target), "digest": digest}
        _api.show_one(written, as_json, [("folder", str(target)), ("digest", digest)])
        return
    named = base or base_folder(folder)
    if kind != "transformers":
        _model_exports.write_gguf(folder, named, target, kind, dtype)
        written = {"file": str(target), "bytes": target.stat().st_size}
        fields = [("file", str(target)), ("size", _api.size(written["bytes"]))]
        _api.show_one(written, as_json, fields)
        return
    written = _model_exports.merge(folder, named, target, dtype)
    apart = f"{written['difference']:.1e} of the largest logit"
    fields = [("folder", str(target)), ("stored as", dtype), ("apart by", apart)]
    _api.show_one(written, as_json, fields)


@command.command("where")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@_options.as_json
def where(folder: Path, as_json: bool) -> None:
    """Print where the base model of a downloaded adapter is, and name that to PEFT.

    Libraries read a path from adapter_config.json. After a folder with its base was moved, this
    writes the path that it has now.
    """
    base = base_folder(folder).resolve()
    name_base(folder, str(base), None)
    _api.show_one({"base": str(base)}, as_json, [("base", str(base))])


@command.command("register")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--server", envvar="MLFLOW_TRACKING_URI", required=True, help="URL of an MLflow server."
)
@click.option("--name", help="Name of the model there. [base model and suffix]")
@click.option("--alias", help="What the version is called from now on, like champion.")
@_options.as_json
def register(folder: Path, server: str, name: str | None, alias: str | None, as_json: bool) -> None:
    """Register a downloaded version in the registry of an MLflow server.

    Its files are uploaded as they are, its lineage becomes parameters of a run. Credentials are
    those of MLflow's own client: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and _PASSWORD.
    """
    from tunery.cli._mlflow import MlflowServer

    with MlflowServer(server) as mlflow:
        known = mlflow.register(folder, name, alias)
    _api.show_one(known, as_json, [(key, known[key]) for key in ("name", "version", "source")])


@command.command("serve")
@click.option("--check", is_flag=True, help="Print the capability row of the engine's version.")
@click.option(
    "--engine",
    type=click.Choice(tuple(ENGINES)),
    envvar="TUNERY_ENGINE_DRIVER",
    default="llama",
    help="Which engine. [TUNERY_ENGINE_DRIVER, or llama]",
)
@click.option(
    "--server",
    envvar="TUNERY_ENGINE_SERVERS",
    default="http://127.0.0.1:8000",
    help="URL of a vLLM or SGLang server to ask. [the first of TUNERY_ENGINE_SERVERS]",
)
@_options.as_json
def serve(check: bool, engine: Any, server: str, as_json: bool) -> None:
    """Print what an engine can do with models, and what it cannot.

    Exit code 1 where the server that answers is too old or loads no adapters while it runs.
    """
    if not check:
        raise click.UsageError("`tunery serving create` starts replicas; name --check here.")
    checked = check_engine(engine, server.split(",")[0].strip())
    _api.show_one(checked, as_json, row_lines(checked))
    if checked["lacks"]:
        raise SystemExit(1)


@command.command("verify")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@click.option(
    "--key",
    "keys",
    multiple=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="A public key or certificates as PEM; repeatable. [the key of the stack here]",
)
@click.option(
    "--base",
    "bases",
    multiple=True,
    help="A name that adapter_config.json may give the base model, or NAME@COMMIT; repeatable.",
)
@_options.data_dir
@_options.as_json
def verify(
    folder: Path, keys: tuple[Path, ...], bases: tuple[str, ...], folders: DataDir, as_json: bool
) -> None:
    """Compare the files of a downloaded model with its signature, without a network.

    Exit code 1 when a file differs, is missing or was added, and when nobody trusted signed them.
    """
    from tunery.provenance.folders import compare_folder
    from tunery.provenance.keys import PUBLIC, KeyUnusable, Untrusted, read_trust

    own = folders.signing / PUBLIC
    if not keys and not own.is_file():
        text = f"there is no key of a stack in {folders.signing}"
        raise LocalError(text, "name the public key of who published the model with --key FILE")
    try:
        trust = read_trust(keys or (own,))
        files = compare_folder(folder, trust, datetime.now(UTC), bases)
    except (KeyUnusable, Untrusted) as error:
        raise LocalError(
            str(error), "download the model again, or name another key with --key FILE"
        ) from error
    rows = [{"file": file.name, "difference": file.difference, "note": file.note} for file in files]
    _api.show(
        rows,
        as_json,
        {
            "file": "file",
            "result": lambda row: row["difference"] or row["note"] or "as signed",
        },
    )
    if any(row["difference"] for row in rows):
        raise SystemExit(1)


def _name_base(api: "Api", base_id: str, folder: Path, named: str | None, with_base: bool) -> None:
    """Name the base model of an adapter: as the caller says, else in public, else by its id."""
    if with_base:
        api.fetch_base(base_id, folder / BASE)
        name_base(folder, str((folder / BASE).resolve()), None)
    elif named is not None:
        at_hand = Path(named).expanduser()
        name_base(folder, str(at_hand.resolve()) if at_hand.is_dir() else named, None)
    else:
        bases = [base for base in api.bases() if base["id"] == base_id and base["source"]]
        for base in bases:
            name_base(folder, str(base["source"]), base["revision"])
        if not bases:
            click.echo(
                f"{base_id} has no public name: --base FOLDER names it, --with-base downloads it.",
                err=True,
            )


def _target(folder: Path, file: Mapping[str, Any]) -> Path:
    """Return the path for an adapter's file, in `folder` even if its name has directories."""
    return folder / Path(file["name"]).name

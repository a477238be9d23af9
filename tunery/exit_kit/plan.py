"""Plans how a job of the account is trained here: base model, settings with reasons, rows."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import msgspec

from tunery.exit_kit.folder import ExportFolder, is_name, read, write
from tunery.exit_kit.kept import KeptRows
from tunery.exit_kit.rows import CheckedRows, checked_rows, divided_rows
from tunery.local.errors import LocalError
from tunery.plan.knobs import KNOBS

TABLE: Final = Path(__file__).with_name("bases.toml")
PLAN: Final = "plan.json"
BENCHMARKS: Final = "MMLU-Pro / MATH / HumanEval / IFEval"
EPOCHS_MAX: Final = 50
METADATA_MAX: Final = 16
TOKEN_BYTES: Final = 4  # of a file of rows, where nothing says how many tokens it has
OWN_NAMES: Final = re.compile(r"-(Reference|Turbo|Lite|Free)$")  # what Together adds to a name
BATCH: Final = "batch_size {}: there it counts rows, here packed rows of a step; chosen by the data"
RATE: Final = (
    "learning_rate_multiplier {}: there it multiplies a rate that was never published; here the "
    "rate that suits the base is taken (multiplier 1)"
)


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Models there that some of here replace, best first. `old` may have * in it."""

    old: list[str]
    new: list[str]
    why: str = ""
    #: scores in percent by `BENCHMARKS` of models there and here, which all are of one source
    published: dict[str, tuple[float, float, float, float]] = {}

    def reasons(self, new: str) -> str:
        """Why a model of here is taken, and what to expect of it by published scores."""
        of_old = [model for model in self.published if model not in self.new]
        scores = [
            f"{model} {' / '.join(map(str, self.published[model]))}"
            for model in (new, *of_old)
            if model in self.published
        ]
        return "; ".join(
            filter(None, (self.why, f"{BENCHMARKS}: {', '.join(scores)}" if scores else ""))
        )


class _Replacements(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    replacement: list[Replacement] = []


class ReplacingBase(msgspec.Struct, frozen=True):
    """A base model for a job. source: what `tunery base add` takes where it is not here yet."""

    id: str
    is_here: bool
    source: str
    why: str


class PlannedJob(msgspec.Struct, frozen=True):
    """What becomes of a job.

    recipe: None where it is not trained again; `reasons` say why
    questions: rows that the old model and the new one are compared on; questions_are: their origin
    """

    job_id: str
    old_model: str
    tuned_model: str | None
    status: str
    base: ReplacingBase | None
    rows: int | None
    left_out: int
    reasons: list[str]
    recipe: dict[str, Any] | None = None
    questions: Path | None = None
    questions_are: str | None = None


def replacements(own: Path | None) -> list[Replacement]:
    """Return the rows of the table, the operator's own first. Raises LocalError."""
    rows: list[Replacement] = []
    for path in (own, TABLE):
        if path is None:
            continue
        try:
            rows += msgspec.convert(
                tomllib.loads(path.read_text(encoding="utf-8")), _Replacements
            ).replacement
        except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            fix = 'write [[replacement]] with old = ["gpt-4o-mini*"] and new = ["my-base"]'
            raise LocalError(f"{path} is no table of base models: {error}", fix) from None
    return rows


def base_for(
    old: str, table: Sequence[Replacement], here: Mapping[str, str]
) -> ReplacingBase | None:
    """Choose the base model that replaces another one; None: the table has none.

    here: name of each base model of the stack, and each alias, to its id
    """
    if old in here:
        return ReplacingBase(
            here[old], True, here[old], f"the operator has made {old} another name of it"
        )
    for row in table:
        if not row.new or not any(fnmatchcase(old, pattern) for pattern in row.old):
            continue
        for new in row.new:
            if (known := here.get(new) or here.get(name_of(new))) is not None:
                return ReplacingBase(known, True, new, row.reasons(new))
        new = row.new[0]
        return ReplacingBase(name_of(new), False, new, row.reasons(new))
    if "/" in old:  # an open model, which can be had here, too
        source = OWN_NAMES.sub("", old)
        known = here.get(source) or here.get(name_of(source))
        why = "the same open model, by its name there"
        return ReplacingBase(known or name_of(source), known is not None, source, why)
    return None


def name_of(source: str) -> str:
    """Return the id that `tunery base add` gives a model of the hub."""
    return source.rpartition("/")[2].lower()


def base_of_tuned(model: str) -> tuple[str, str | None]:
    """Return the base of a tuned model, and its suffix; of other models themselves.

    Names are `ft:BASE:ORGANIZATION:SUFFIX:ID`, and at Azure `BASE.ft-ID` or `BASE.ft-ID-SUFFIX`.
    """
    base, mark, rest = model.partition(".ft-")
    if mark and base:
        return base, rest.partition("-")[2] or None
    parts = model.split(":")
    if parts[0] != "ft" or len(parts) < 2:
        return model, None
    return parts[1], (parts[3] or None) if len(parts) > 3 else None


@dataclass(frozen=True)
class Available:
    """What of an account a job can be trained with.

    rows: of each file that is here
    held_out: of files that have no validation rows, the two files that they were divided into
    """

    root: Path
    rows: Mapping[str, CheckedRows]
    held_out: Mapping[str, tuple[Path, Path]]
    kept: Sequence[KeptRows]

    def named(self, path: Path) -> str:
        """Return a path as recipes name it."""
        return f"../{path.relative_to(self.root)}"

    def eval_of(self, model: str | None) -> KeptRows | None:
        """Return an eval that has judged a model, with rows if there is one."""
        evals = [kept for kept in self.kept if kept.kind == "eval" and model in kept.models]
        return max(evals, key=lambda kept: (kept.path is not None, kept.rows), default=None)


def plan_job(
    job: Mapping[str, Any],
    table: Sequence[Replacement],
    here: Mapping[str, str],
    available: Available,
) -> PlannedJob:
    """Plan a job."""
    old, _ = base_of_tuned(job["model"])
    base = base_for(old, table, here)
    data = available.rows.get(job["training_file"])
    reasons: list[str] = []
    if job["status"] != "succeeded":
        reasons.append(f"it is {job['status']} there, and has no model to replace")
    if base is None:
        reasons.append(f"no base is named for {old}: add it to a file for --bases")
    if data is None:
        reasons.append(f"its training file {job['training_file']} could not be had")
    elif data.path is None:
        reasons.append(f"too few rows can be trained on: {_counts(data.reasons)}")
    planned = PlannedJob(
        job_id=job["id"],
        old_model=job["model"],
        tuned_model=job.get("fine_tuned_model"),
        status=job["status"],
        base=base,
        rows=None if data is None else data.rows,
        left_out=0 if data is None else data.left_out,
        reasons=reasons,
    )
    if reasons or base is None or data is None or data.path is None:
        return planned
    if not base.is_here:
        reasons.append(f"{base.id} is not here yet: `tunery base add {base.source}`")
    if old != job["model"]:
        reasons.append(f"it continued {job['model']}, whose weights stay there: from its base here")
    if data.left_out:
        reasons.append(f"{data.left_out:,} rows are left out: {_counts(data.reasons)}")
    training, held_out, origin = _divided(job, data.path, available, reasons)
    recipe = recipe_without_rows(job, base, reasons) | {"training_file": available.named(training)}
    if held_out is not None:
        recipe["validation_file"] = available.named(held_out)
    if (judged := available.eval_of(planned.tuned_model)) is not None and judged.measures:
        recipe["eval"] = {"measures": judged.measures}
        reasons.append(f"measures are those of {judged.id}")
    return msgspec.structs.replace(
        planned, recipe=recipe, questions=held_out or training, questions_are=origin
    )


def _divided(
    job: Mapping[str, Any], training: Path, available: Available, reasons: list[str]
) -> tuple[Path, Path | None, str]:
    """Choose rows to train on, rows that are held out, and say what those are."""
    if (validation := job.get("validation_file")) is not None:
        checked = available.rows.get(validation)
        if checked is not None and checked.path is not None:
            return training, checked.path, "validation rows of the old job"
        why = "could not be had" if checked is None else _counts(checked.reasons)
        reasons.append(f"validation file {validation} is left out: {why}")
    judged = available.eval_of(job.get("fine_tuned_model"))
    if judged is not None and judged.path is not None:
        reasons.append(f"validation rows are the {judged.rows:,} of {judged.id}")
        return training, judged.path, f"rows of {judged.id}"
    if (divided := available.held_out.get(job["training_file"])) is not None:
        reasons.append("rows are held out to compare the models; the old one was trained on them")
        return *divided, "held out here; the old model was trained on them"
    return training, None, "trained on by both models: there are too few rows to hold some out"


def tokens_of_epoch(job: Mapping[str, Any], file_bytes: int | None) -> int | None:
    """Tokens of a job's rows: those that were billed there, else by the size of its file."""
    hyper = (job.get("hyperparameters") or {}) | _details(job)
    epochs = hyper.get("n_epochs")
    trained = job.get("trained_tokens")
    if trained and isinstance(epochs, int) and epochs > 0:
        return max(1, int(trained) // epochs)
    return None if not file_bytes else max(1, file_bytes // TOKEN_BYTES)


def _details(job: Mapping[str, Any]) -> dict[str, Any]:
    """Hyper-parameters of a job's method."""
    method = job.get("method") or {}
    details = method.get(method.get("type") or "supervised") or {}
    return dict(details.get("hyperparameters") or {})


def recipe_without_rows(
    job: Mapping[str, Any], base: ReplacingBase, reasons: list[str]
) -> dict[str, Any]:
    """Return the recipe of a job without its rows; `reasons` gets what is otherwise than there."""
    recipe: dict[str, Any] = {"version": 1, "model": base.id}
    method = job.get("method") or {}
    kind = method.get("type") or "supervised"
    details = method.get(kind) or {}
    if kind != "supervised":
        recipe["method"] = {"type": kind}
    if kind == "reinforcement" and details.get("grader") is not None:
        recipe["method"]["reinforcement"] = {"grader": details["grader"]}
    hyper = {**(job.get("hyperparameters") or {}), **_details(job)}
    recipe |= {"training": training} if (training := translated(hyper, reasons)) else {}
    recipe |= {"lora": job["lora"]} if job.get("lora") else {}
    if isinstance(job.get("seed"), int):
        recipe["seed"] = job["seed"]
    suffix = job.get("user_provided_suffix") or base_of_tuned(job.get("fine_tuned_model") or "")[1]
    if suffix:
        recipe["suffix"] = suffix
    metadata = dict(job.get("metadata") or {})
    if len(metadata) < METADATA_MAX:
        metadata["openai_job"] = job["id"]
    recipe["metadata"] = metadata
    return recipe


def translated(hyper: Mapping[str, Any], reasons: list[str]) -> dict[str, Any]:
    """Hyper-parameters as they are said here; `reasons` gets what is left out and why."""
    training: dict[str, Any] = {}
    for name, value in hyper.items():
        if value in (None, "auto", "max", -1):  # -1: Azure's word for auto
            continue
        match name:
            case "learning_rate":
                training[name] = value
            case "n_epochs":
                training[name] = min(int(value), EPOCHS_MAX)
                if value > EPOCHS_MAX:
                    reasons.append(f"n_epochs {value}: {EPOCHS_MAX} is the most here")
            case "beta":
                training[name] = value
            case "batch_size":
                reasons.append(BATCH.format(value))
            case "learning_rate_multiplier":
                reasons.append(RATE.format(value))
            case _:
                known = "has another meaning here" if name in KNOBS else "is not known here"
                reasons.append(f"{name} {value}: {known}")
    return training


def _counts(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{code} × {count:,}" for code, count in reasons.items()) or "no rows"


def plan_account(
    folder: ExportFolder,
    kept: Sequence[KeptRows],
    table: Sequence[Replacement],
    here: Mapping[str, str],
) -> list[PlannedJob]:
    """Check the rows of every job in a folder, and plan each job, newest first. Raises OSError."""
    jobs = folder.all_jobs()
    named: set[Any] = {
        job.get(name) for job in jobs for name in ("training_file", "validation_file")
    }
    rows = {
        file_id: checked_rows(folder.content(file_id), folder.data)
        for file_id in sorted(filter(is_name, named))
        if folder.file(file_id) is not None
    }
    alone = {job["training_file"] for job in jobs if not job.get("validation_file")}
    held_out = {
        file_id: divided
        for file_id, checked in rows.items()
        if file_id in alone
        and checked.path is not None
        and (divided := divided_rows(checked.path, folder.data)) is not None
    }
    available = Available(folder.root, rows, held_out, kept)
    return [plan_job(job, table, here, available) for job in jobs]


def keep_plan(folder: ExportFolder, planned: Sequence[PlannedJob]) -> None:
    write(folder.root / PLAN, msgspec.to_builtins(planned, enc_hook=str))


def kept_plan(folder: ExportFolder) -> list[PlannedJob]:
    """Return what was planned last in a folder."""
    objects = read(folder.root / PLAN, [])
    return msgspec.convert(objects, list[PlannedJob], dec_hook=lambda kind, text: kind(text))

"""Makes rows of evals and stored completions, and says why the rest has no meaning here."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from tunery.exit_kit.folder import ExportFolder, is_name, read
from tunery.exit_kit.rows import checked_rows, write_rows
from tunery.graders.grader import GraderRefused
from tunery.graders.templates import VariableUnknown, render, template_problem
from tunery.measures.declaration import parse_measures

FIELDS: Final = ("type", "name", "input", "reference", "operation", "evaluation_metric")
HERE: Final = "{{item.reference}}"  # the last answer of a validation row
NO_REFERENCE: Final = "no criterion has a reference that could be an answer"


class KeptRows(msgspec.Struct, frozen=True):
    """Rows of an eval, or of the stored completions of one model.

    models: whose answers were judged, or stored
    path: rows with the eval's references, or with the stored answers, as answers; None: too few
    measures: what the eval judges by, as `eval.measures` of a recipe
    left_out: what is not in the rows or the measures, and how often
    """

    kind: str
    id: str
    models: list[str]
    rows: int
    path: Path | None
    measures: list[dict[str, Any]]
    left_out: dict[str, int]


def kept_rows(folder: ExportFolder) -> list[KeptRows]:
    """Write and return the rows of all evals and stored completions of a folder. Raises OSError."""
    evals = [_eval_rows(read(path, {}), folder) for path in sorted(folder.evals.glob("*.json"))]
    return [*evals, *_completion_rows(folder)]


def _eval_rows(record: Mapping[str, Any], folder: ExportFolder) -> KeptRows:
    left_out: Counter[str] = Counter()
    reference, measures = _measures(record.get("testing_criteria") or (), left_out)
    rows: dict[str, dict[str, Any]] = {}  # by question: each run asks the same
    for item in (item for run in record["runs"] for item in run["output_items"]):
        try:
            asked = _messages((item.get("sample") or {}).get("input") or ())
            values = {"item": item.get("datasource_item") or {}, "sample": {}}
            if reference is None:
                raise ValueError(NO_REFERENCE)
            right = render(reference, values).text
            rows.setdefault(json.dumps(asked), _row(asked, {"content": right}))
        except VariableUnknown as unknown:
            left_out[f"{unknown.args[0]} is not in the item"] += 1
        except ValueError as error:
            left_out[str(error)] += 1
    models = sorted({str(run["model"]) for run in record["runs"] if run.get("model")})
    return _kept("eval", record["id"], folder, rows.values(), left_out, models, measures)


def _measures(
    criteria: Sequence[Mapping[str, Any]], left_out: Counter[str]
) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the template of the references, and the criteria that compare an answer with it."""
    reference: str | None = None
    measures: list[dict[str, Any]] = []
    for criterion in criteria:
        wanted, kind = criterion.get("reference"), criterion.get("type")
        name = f"criterion {criterion.get('name')} ({kind})"
        if kind in ("score_model", "label_model"):
            left_out[f'{name}: a model judges; name "judge" in eval.measures'] += 1
        elif not isinstance(wanted, str) or "sample." in wanted or template_problem(wanted):
            left_out[f"{name}: it compares with nothing that an item has"] += 1
        elif reference not in (None, wanted):
            left_out[f"{name}: a row has one reference, and another criterion gives it"] += 1
        else:
            fields = {field: criterion[field] for field in FIELDS if criterion.get(field)}
            try:
                parse_measures([fields | {"reference": HERE}])
            except GraderRefused as refused:
                left_out[f"{name}: {refused}"] += 1
                continue
            reference = wanted
            measures.append(fields | {"reference": HERE})
    return reference, measures


def _completion_rows(folder: ExportFolder) -> Iterator[KeptRows]:
    rows: dict[str, list[dict[str, Any]]] = {}
    left_out: dict[str, Counter[str]] = {}
    for stored in folder.completions():
        model = str(stored.get("model"))
        rows.setdefault(model, []), left_out.setdefault(model, Counter())
        try:
            choice = (stored.get("choices") or [{}])[0]
            if choice.get("finish_reason") not in ("stop", "tool_calls"):
                raise ValueError(f"it ended with {choice.get('finish_reason')}")
            row = _row(_messages(stored["messages"]), choice["message"])
        except ValueError as error:
            left_out[model][str(error)] += 1
            continue
        rows[model].append(row | ({"tools": stored["tools"]} if stored.get("tools") else {}))
    for model in sorted(rows):
        name = model.replace("/", "-") if is_name(model.replace("/", "-")) else "unnamed"
        yield _kept("completions", name, folder, rows[model], left_out[model], [model])


def _messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages as rows have them. Raises ValueError with the reason why they cannot be."""
    asked = []
    for message in messages:
        content = message.get("content")
        if not isinstance(content, str):
            parts = message.get("content_parts") or content or ()
            kinds = {str(part.get("type")) for part in parts if isinstance(part, Mapping)}
            if not kinds or kinds - {"text", "input_text"}:
                raise ValueError(f"it has {', '.join(sorted(kinds)) or 'no text'}")
            content = "".join(str(part.get("text")) for part in parts)
        fields = {
            name: message[name] for name in ("tool_calls", "tool_call_id") if message.get(name)
        }
        asked.append({"role": message.get("role") or "user", "content": content, **fields})
    if not asked:
        raise ValueError("what was asked is not there")
    return asked


def _row(asked: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer.get("refusal"):
        raise ValueError("it is a refusal")
    said = {name: answer[name] for name in ("content", "tool_calls") if answer.get(name)}
    if not said:
        raise ValueError("its answer is empty")
    return {"messages": [*asked, {"role": "assistant", **said}]}


def _kept(
    kind: str,
    name: str,
    folder: ExportFolder,
    rows: Iterable[Mapping[str, Any]],
    left_out: Counter[str],
    models: Sequence[str],
    measures: Sequence[dict[str, Any]] = (),
) -> KeptRows:
    """Write rows, and check them as an upload is checked."""
    content = folder.kept / f"{kind}-{name}.jsonl"
    write_rows(content, rows)
    checked = checked_rows(content, folder.data)
    left_out.update(checked.reasons)
    return KeptRows(
        kind=kind,
        id=name,
        models=list(models),
        rows=0 if checked.path is None else checked.rows,
        path=checked.path,
        measures=list(measures),
        left_out=dict(left_out.most_common()),
    )

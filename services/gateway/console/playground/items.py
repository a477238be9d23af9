"""Evaluation items: rows that a person keeps, as versions of one data set of the tenant.

It is a file like any other: `validation_file: "evaluation@3"` measures a training by its rows.
"""

import json
from typing import Any, Final

from services.gateway.console.calls import FILES, CallRefused, Calls, path_to, refusal_of
from tunery.data.findings.limits import ROWS_MIN

DATASET: Final = "evaluation"
BYTES_MAX: Final = 1024 * 1024  # each version is a whole file


async def save(api: Calls, row: Any) -> dict[str, Any]:
    """Add a row to the data set; one that it has already changes nothing. Raises CallRefused."""
    versions = (await api.get(FILES, dataset=DATASET, limit=1))["data"]
    before = await _content(api, versions[0]) if versions else b""
    line = json.dumps(row, ensure_ascii=False).encode() + b"\n"
    rows = before.splitlines(keepends=True)
    if line in rows:
        return _saved(versions[0], len(rows), is_new=False)
    form = {"purpose": "fine-tune", "dataset": DATASET}
    files = {"file": (f"{DATASET}.jsonl", before + line, "application/jsonl")}
    response = await api.send("POST", FILES, data=form, files=files)
    if not response.is_success:
        raise refusal_of(response)
    return _saved(response.json(), len(rows) + 1, is_new=True)


async def _content(api: Calls, file: dict[str, Any]) -> bytes:
    if file["bytes"] > BYTES_MAX:
        message = f"{file['id']} has {file['bytes']} bytes: add rows to it with `tunery file`."
        raise CallRefused(400, "invalid_request", message)
    response = await api.send("GET", f"{path_to(FILES, file['id'])}/content?encoding=plain")
    if not response.is_success:
        raise refusal_of(response)
    return response.content if response.content.endswith(b"\n") else response.content + b"\n"


def _saved(file: dict[str, Any], rows: int, *, is_new: bool) -> dict[str, Any]:
    return {"file": file, "rows": rows, "wanted": ROWS_MIN, "is_new": is_new}

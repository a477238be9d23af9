"""Files and their validation."""

from typing import Any

from services.gateway.files.names import label
from services.gateway.web.responses import Opened, Row, seconds

UNREADABLE = "The file could not be checked"


def file_object(row: Row, opened: Opened) -> dict[str, Any]:
    validation = row["validation"]
    return {
        "id": row["id"],
        "object": "file",
        "bytes": row["bytes"],
        "created_at": seconds(row["created_at"]),
        "expires_at": seconds(row["expires_at"]),
        "filename": opened(row["name"]),
        "purpose": row["purpose"],
        "status": row["status"],
        "status_details": _details(row),
        "sha256": row["sha256"],
        "dataset": label(row, opened),
        "validation": None
        if validation is None
        else {key: validation[key] for key in ("accepted", "dialect", "rows", "errors", "warnings")}
        | {"tokens": {one["base_id"]: one["tokens"] for one in validation["tokens"]}},
    }


def dataset_object(row: Row, opened: Opened) -> dict[str, Any]:
    return {
        "id": opened(row["name"]),
        "object": "dataset",
        "latest_version": row["version"],
        "latest_file": row["file_id"],
        "updated_at": seconds(row["updated_at"]),
    }


def upload_object(row: Row, file: Row | None, opened: Opened) -> dict[str, Any]:
    """`file`: what a completed upload became, while it is kept."""
    return {
        "id": row["id"],
        "object": "upload",
        "bytes": row["bytes"],
        "created_at": seconds(row["created_at"]),
        "expires_at": seconds(row["expires_at"]),
        "filename": opened(row["name"]),
        "purpose": row["purpose"],
        "status": row["status"],
        "mime_type": row["media_type"],
        "file": None if file is None else file_object(file, opened),
    }


def part_object(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "object": "upload.part",
        "created_at": seconds(row["created_at"]),
        "upload_id": row["upload_id"],
        "bytes": row["bytes"],
        "sha256": row["sha256"],
    }


def _details(row: Row) -> str | None:
    if row["status"] != "error":
        return None
    if row["validation"] is None:
        return f"{UNREADABLE}: {row['failure'] or 'unknown reason'}"
    count = row["validation"]["errors"]
    return f"{count} problems; GET /v1/files/{row['id']}/validation lists them with row and fix"


def validation_object(row: Row, report: Any) -> dict[str, Any]:
    """`report`: the validator's own, every finding with row, line, pointer, code and hint."""
    validation = row["validation"]
    shown: dict[str, Any] = {
        "id": row["id"],
        "object": "file.validation",
        "status": "pending" if row["status"] == "uploaded" else "done",
        "accepted": None,
    }
    if row["status"] == "error" and validation is None:
        failure = f"{UNREADABLE}: {row['failure'] or 'unknown reason'}"
        return {**shown, "accepted": False, "failure": failure}
    if validation is None:
        return shown
    facts = {key: value for key, value in validation.items() if key != "report_blob"}
    return {**shown, **facts, "report": report}

"""Base models and fine-tuned versions."""

from collections.abc import Mapping, Sequence
from typing import Any

from services.gateway.web.responses import Row, seconds

OWNER = "tunery"


def base_object(row: Row) -> dict[str, Any]:
    base = row["base"]
    return {
        "id": row["id"],
        "object": "model",
        "created": seconds(row["created_at"]),
        "owned_by": OWNER,
        "shutdown_date": None,
        "type": "base",
        "sha256": base["sha256"],
        "parameters": base["parameters"],
        "context_length": base["context_length"],
        "family": base["family"],
        "licence": base["licence"],
    }


def model_object(row: Row) -> dict[str, Any]:
    lineage = row["lineage"]
    return {
        "id": row["id"],
        "object": "model",
        "created": seconds(row["created_at"]),
        "owned_by": row["tenant"],
        "shutdown_date": None,
        "type": "fine-tuned",
        "parent": lineage["base_id"],
        "job_id": lineage["job_id"],
        "line": row["line"],
        "stage": row["stage"],
        "stage_since": seconds(row["stage_at"]),
        "quarantined": row["quarantined"],
        "verdict": lineage["verdict"],
        "lineage": lineage,
    }


def adapter_object(row: Row, urls: Sequence[str], expires_at: int) -> dict[str, Any]:
    """`urls`: one for each file of the version, in its order. `expires_at` in seconds."""
    files = [
        {"name": file["name"], "sha256": file["sha256"], "bytes": file["bytes"], "url": url}
        for file, url in zip(row["files"], urls, strict=True)
    ]
    return {
        "id": row["id"],
        "object": "model.adapter",
        "format": "peft",
        "base_model": f"{row['lineage']['base_id']}@sha256:{row['lineage']['base_sha256']}",
        "expires_at": expires_at,
        "files": files,
    }


def permission_object(row: Row) -> dict[str, Any]:
    """`project_id`: the tenant that may fetch the checkpoint."""
    return {
        "id": row["id"],
        "object": "checkpoint.permission",
        "created_at": seconds(row["created_at"]),
        "project_id": row["project_id"],
    }


def checkpoint_files(row: Row, urls: Mapping[str, str], expires_at: int) -> dict[str, Any]:
    """`urls`: those of the files that can be used without the run; `expires_at` in seconds."""
    files = [
        {"name": file["name"], "sha256": file["sha256"], "bytes": file["bytes"], "url": url}
        for file in row["files"]
        if (url := urls.get(file["name"])) is not None
    ]
    return {
        "id": row["id"],
        "object": "checkpoint.adapter",
        "format": "peft",
        "step_number": row["step"],
        "expires_at": expires_at,
        "files": files,
    }

"""The bill of materials of a version: CycloneDX 1.6, for machine learning."""

import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from schemas.model import VersionTerms

SPECIFICATION: Final = "1.6"
SCHEMA: Final = f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json"


def bill_of_materials(terms: VersionTerms, files: Mapping[str, str]) -> bytes:
    """The bill of a version as JSON; equal each time.

    files: SHA-256 by name, of what was trained
    """
    lineage = terms.lineage
    identity = "\n".join((terms.model_id, *(f"{name} {files[name]}" for name in sorted(files))))
    bill = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, identity)}",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "tunery"}]},
            "component": {
                "type": "machine-learning-model",
                "bom-ref": terms.model_id,
                "name": terms.model_id,
                "group": terms.series,
                "pedigree": {"ancestors": _ancestors(terms)},
                "modelCard": _card(terms),
                "properties": [
                    {"name": f"tunery:{name}", "value": value}
                    for name, value in (
                        ("job", lineage.job_id),
                        ("configuration", lineage.configuration),
                        ("config_sha256", lineage.config_sha256),
                        *((f"environment:{key}", text) for key, text in _environment(terms)),
                    )
                    if value
                ],
            },
        },
        "components": [
            {"type": "file", "bom-ref": name, "name": name, "hashes": [_hash(files[name])]}
            for name in sorted(files)
        ],
        "dependencies": [{"ref": terms.model_id, "dependsOn": sorted(files)}],
    }
    return (json.dumps(bill, indent=2, sort_keys=True) + "\n").encode()


def _ancestors(terms: VersionTerms) -> list[dict[str, Any]]:
    lineage = terms.lineage
    ancestors = [(lineage.base_id, lineage.base_sha256)]
    if lineage.start_id is not None and lineage.start_sha256 is not None:
        ancestors.append((lineage.start_id, lineage.start_sha256))
    return [
        {"type": "machine-learning-model", "name": name, "hashes": [_hash(sha256)]}
        for name, sha256 in ancestors
    ]


def _card(terms: VersionTerms) -> dict[str, Any]:
    lineage = terms.lineage
    data = [
        {"name": "version", "value": lineage.dataset_version},
        {"name": "sha256", "value": lineage.training_sha256},
    ]
    contents = {"type": "dataset", "name": "training", "contents": {"properties": data}}
    return {
        "modelParameters": {
            "task": "text-generation",
            # what others trained on is not known, and what a session did is in its journal
            "datasets": [] if lineage.imported or lineage.saved_in else [contents],
        },
        "quantitativeAnalysis": {
            "performanceMetrics": [{"type": "gate verdict", "value": lineage.verdict}]
        },
    }


def _environment(terms: VersionTerms) -> list[tuple[str, str]]:
    return sorted(terms.lineage.environment.items())


def _hash(sha256: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": sha256}

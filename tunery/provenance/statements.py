"""What is signed: the files of a version, and its lineage, as statements of in-toto."""

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from schemas.model import Lineage, VersionTerms
from tunery.provenance.envelopes import STATEMENT
from tunery.provenance.keys import Untrusted

SIGNATURE: Final = "model.sig"
LINEAGE_STATEMENT: Final = "lineage.intoto.json"
MATERIALS: Final = "bom.cdx.json"
#: what the registry adds to a version, besides its lineage as `lineage.json`
PROVENANCE_FILES: Final = (SIGNATURE, LINEAGE_STATEMENT, MATERIALS)
FILES_TYPE: Final = "https://model_signing/signature/v1.0"
LINEAGE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "https://tunery.dev/fine-tuning/v1"
IMPORT_TYPE: Final = "https://tunery.dev/import/v1"  # trained elsewhere, judged by the gate here
SESSION_TYPE: Final = "https://tunery.dev/session/v1"  # saved by a session, likewise
IGNORED: Final = (".git", ".gitattributes", ".github", ".gitignore", SIGNATURE)


def files_statement(model_id: str, files: Mapping[str, str]) -> dict[str, Any]:
    """The statement of model-signing about a folder.

    files: SHA-256 by name, without the signature
    """
    ordered = sorted(files.items())
    root = hashlib.sha256(b"".join(bytes.fromhex(sha256) for _, sha256 in ordered)).hexdigest()
    return {
        "_type": STATEMENT,
        "subject": [{"name": model_id, "digest": {"sha256": root}}],
        "predicateType": FILES_TYPE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": list(IGNORED),
            },
            "resources": [
                {"name": name, "algorithm": "sha256", "digest": sha256} for name, sha256 in ordered
            ],
        },
    }


def signed_files(statement: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 by name of the files that a statement is about. Raises Untrusted for another one."""
    try:
        if statement["predicateType"] != FILES_TYPE:
            raise Untrusted(f"{statement['predicateType']!r} is no signature of a model's files")
        if statement["predicate"]["serialization"]["method"] != "files":
            raise Untrusted("it is a signature over parts of files, which is not read here")
        resources = statement["predicate"]["resources"]
        files = {str(entry["name"]): str(entry["digest"]) for entry in resources}
        (subject,) = statement["subject"]
        root = files_statement("", files)["subject"][0]["digest"]
        if len(files) != len(resources) or subject["digest"] != root:
            raise Untrusted("its list of files contradicts itself")
    except (KeyError, TypeError, ValueError) as error:
        raise Untrusted("it is no signature of a model's files") from error
    return files


def lineage_statement(terms: VersionTerms, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the origin of a version as SLSA provenance.

    files: SHA-256 of the trained files, by name
    """
    lineage = terms.lineage
    return {
        "_type": STATEMENT,
        "subject": [
            {"name": name, "digest": {"sha256": sha256}} for name, sha256 in sorted(files.items())
        ],
        "predicateType": LINEAGE_TYPE,
        "predicate": {
            "buildDefinition": {
                "buildType": _build_type(lineage),
                "externalParameters": {
                    "model": terms.model_id,
                    "series": terms.series,
                    "configuration": lineage.configuration,
                },
                "internalParameters": {
                    "config_sha256": lineage.config_sha256,
                    "environment": dict(sorted(lineage.environment.items())),
                    "steps": lineage.steps,
                },
                "resolvedDependencies": _inputs(terms),
            },
            "runDetails": {
                "builder": {"id": "https://tunery.dev/trainer"},
                "metadata": {"invocationId": lineage.job_id},
                "byproducts": [
                    {
                        "name": "gate",
                        "digest": {"sha256": lineage.scores_sha256},
                        "annotations": {"verdict": lineage.verdict},
                    }
                ],
            },
        },
    }


def _build_type(lineage: Lineage) -> str:
    if lineage.saved_in is not None:
        return SESSION_TYPE
    return IMPORT_TYPE if lineage.imported else BUILD_TYPE


def _inputs(terms: VersionTerms) -> list[dict[str, Any]]:
    lineage = terms.lineage
    inputs: list[dict[str, Any]] = [
        {"name": f"base:{lineage.base_id}", "digest": {"sha256": lineage.base_sha256}}
    ]
    if lineage.saved_in is not None:  # its journal says what it was trained on
        session = lineage.saved_in
        name = f"session:{session.session_id}"
        inputs.append({"name": name, "uri": f"urn:tunery:{name}:{session.command}"})
    elif not lineage.imported:  # else what it was trained on is not known
        dataset: dict[str, Any] = {
            "name": "dataset",
            "digest": {"sha256": lineage.training_sha256},
            "annotations": {"version": lineage.dataset_version},
        }
        if lineage.reasoning != "keep":
            dataset["annotations"]["reasoning"] = lineage.reasoning
        inputs.append(dataset)
    if lineage.chat_sha256 is not None:
        inputs.append({"name": "chat", "digest": {"sha256": lineage.chat_sha256}})
    if lineage.start_id is not None and lineage.start_sha256 is not None:
        inputs.append(
            {"name": f"start:{lineage.start_id}", "digest": {"sha256": lineage.start_sha256}}
        )
    return inputs

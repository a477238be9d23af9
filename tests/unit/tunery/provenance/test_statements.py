"""The statements that are signed: files of a version, and where it comes from."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.session import SavedIn
from tests.unit.tunery.provenance.signed import TERMS
from tunery.provenance.keys import Untrusted
from tunery.provenance.materials import bill_of_materials
from tunery.provenance.statements import files_statement, lineage_statement, signed_files

FILES = {"b.json": "bb" * 32, "a.json": "aa" * 32}


def test_signed_files_are_read_back() -> None:
    assert signed_files(files_statement("m", FILES)) == FILES


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"predicateType": "x"}, "no signature of a model's files"),
        ({"subject": [{"name": "m", "digest": {"sha256": "0" * 64}}]}, "contradicts itself"),
        ({"predicate": {"serialization": {"method": "shards"}}}, "parts of files"),
        ({"predicate": {}}, "no signature of a model's files"),
    ],
)
def test_another_statement_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(Untrusted, match=why):
        signed_files({**files_statement("m", FILES), **change})


def test_a_lineage_names_every_input_by_its_hash() -> None:
    statement = lineage_statement(TERMS, FILES)
    assert [entry["name"] for entry in statement["subject"]] == ["a.json", "b.json"]
    definition = statement["predicate"]["buildDefinition"]
    inputs = {
        entry["name"]: entry["digest"]["sha256"] for entry in definition["resolvedDependencies"]
    }
    lineage = TERMS.lineage
    assert inputs == {
        "base:small": lineage.base_sha256,
        "dataset": lineage.training_sha256,
        f"start:{lineage.start_id}": lineage.start_sha256,
    }
    details = statement["predicate"]["runDetails"]
    assert details["metadata"]["invocationId"] == lineage.job_id
    assert details["byproducts"][0]["annotations"] == {"verdict": "pass"}
    assert definition["internalParameters"]["environment"] == dict(lineage.environment)


def test_bases_f7_a_lineage_says_that_reasoning_was_dropped() -> None:
    lineage = replace(TERMS.lineage, reasoning="drop")
    definition = lineage_statement(replace(TERMS, lineage=lineage), {})["predicate"][
        "buildDefinition"
    ]
    (dataset,) = (d for d in definition["resolvedDependencies"] if d["name"] == "dataset")
    assert dataset["annotations"] == {"version": lineage.dataset_version, "reasoning": "drop"}


def test_bases_f7_a_lineage_names_a_template_of_its_own() -> None:
    lineage = replace(TERMS.lineage, chat_sha256="c" * 64)
    definition = lineage_statement(replace(TERMS, lineage=lineage), {})["predicate"][
        "buildDefinition"
    ]
    assert {"name": "chat", "digest": {"sha256": "c" * 64}} in definition["resolvedDependencies"]


def test_a_version_of_a_session_names_its_journal() -> None:
    saved_in = SavedIn(session_id="session-1", command="7")
    lineage = replace(TERMS.lineage, saved_in=saved_in, start_id=None, start_sha256=None)
    definition = lineage_statement(replace(TERMS, lineage=lineage), {})["predicate"][
        "buildDefinition"
    ]
    assert definition["buildType"].endswith("/session/v1")
    *_, session = definition["resolvedDependencies"]
    assert session == {"name": "session:session-1", "uri": "urn:tunery:session:session-1:7"}


def test_an_import_claims_no_training_data() -> None:
    lineage = replace(TERMS.lineage, imported=True, start_id=None, start_sha256=None)
    terms = replace(TERMS, lineage=lineage)
    definition = lineage_statement(terms, {})["predicate"]["buildDefinition"]
    assert definition["buildType"].endswith("/import/v1")
    assert [source["name"] for source in definition["resolvedDependencies"]] == ["base:small"]
    bill = json.loads(bill_of_materials(terms, {}))
    card = bill["metadata"]["component"]["modelCard"]
    assert card["modelParameters"]["datasets"] == []
    assert card["quantitativeAnalysis"]["performanceMetrics"][0]["value"] == terms.lineage.verdict

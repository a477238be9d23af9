"""The bill of materials: the same bytes each time, with every file and ancestor.

That CycloneDX's own validator accepts it is shown by tests/integration/tunery/provenance.
"""

import json

from tests.unit.tunery.provenance.signed import TERMS
from tunery.provenance.materials import bill_of_materials

FILES = {"b": "bb" * 32, "a": "aa" * 32}


def test_a_bill_lists_files_and_ancestors_by_hash() -> None:
    data = bill_of_materials(TERMS, FILES)
    assert data == bill_of_materials(TERMS, dict(sorted(FILES.items())))
    bill = json.loads(data)
    hashes = {entry["name"]: entry["hashes"][0]["content"] for entry in bill["components"]}
    assert hashes == FILES
    model = bill["metadata"]["component"]
    assert [entry["name"] for entry in model["pedigree"]["ancestors"]] == [
        TERMS.lineage.base_id,
        TERMS.lineage.start_id,
    ]
    properties = {entry["name"]: entry["value"] for entry in model["properties"]}
    assert properties["tunery:environment:lock"] == TERMS.lineage.environment["lock"]
    other = json.loads(bill_of_materials(TERMS, {"a": "aa" * 32}))
    assert other["serialNumber"] != bill["serialNumber"]

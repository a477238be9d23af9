"""Our signatures are verified by OpenSSF's model-signing, the validator of CycloneDX and in-toto's
package for attestations, as they are.
"""

import json
import subprocess
from base64 import b64decode, b64encode
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.environments import environment
from tests.unit.tunery.provenance.signed import (
    NOW,
    certificate,
    new_key,
    sign_folder,
    trust_in,
    write_chain,
)
from tunery.provenance.folders import compare_folder
from tunery.provenance.keys import CERTIFICATES, PRIVATE, PUBLIC, load_key

TOOLS = ("model-signing", "1.1.1", "pyOpenSSL", "cyclonedx-python-lib[json-validation]==11.12.0")
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(open(sys.argv[1]).read())
sys.exit(None if fault is None else str(fault))
"""
# the package comes with model-signing; SLSA's predicate is read without unknown fields
VALIDATE_STATEMENT = """
import base64, json, sys
from google.protobuf.json_format import ParseDict
from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
from in_toto_attestation.v1.statement import Statement
from in_toto_attestation.v1 import statement_pb2
bundle = json.load(open(sys.argv[1]))
statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
read = ParseDict(statement, statement_pb2.Statement())
Statement.copy_from_pb(read).validate()
assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
provenance = ParseDict(statement["predicate"], Provenance())
print(len(read.subject), len(provenance.build_definition.resolved_dependencies))
"""


@pytest.fixture(scope="module")
def programs() -> Path:
    return environment(*TOOLS)


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(word) for word in words]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def verify(programs: Path, folder: Path, kind: str, *options: str | Path) -> tuple[int, str]:
    tool = programs / "model_signing"
    done = run(tool, "verify", kind, folder, "--signature", folder / "model.sig", *options)
    return done.returncode, done.stdout + done.stderr


def test_model_signing_verifies_our_signature_and_names_a_changed_file(
    programs: Path, tmp_path: Path
) -> None:
    folder, keys = tmp_path / "model", tmp_path / "keys"
    sign_folder(folder, new_key(keys))
    key = ("--public_key", keys / PUBLIC)
    assert verify(programs, folder, "key", *key) == (0, "Verification succeeded\n")
    weights = folder / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    status, said = verify(programs, folder, "key", *key)
    assert status == 1
    assert "adapter_model.safetensors" in said


def test_model_signing_verifies_our_certificate(programs: Path, tmp_path: Path) -> None:
    root, own = ec.generate_private_key(ec.SECP256R1()), new_key(tmp_path)
    authority = certificate("ca", root)
    write_chain(tmp_path / CERTIFICATES, certificate("registry", own.private, (authority, root)))
    key = load_key(tmp_path)
    assert key is not None
    sign_folder(tmp_path / "model", key)
    chain = ("--certificate_chain", write_chain(tmp_path / "ca.pem", authority))
    status, said = verify(programs, tmp_path / "model", "certificate", *chain)
    assert status == 0, said


def test_we_verify_what_model_signing_signed(programs: Path, tmp_path: Path) -> None:
    folder, keys = tmp_path / "model", tmp_path / "keys"
    key = new_key(keys)
    folder.mkdir()
    (folder / "weights").write_bytes(b"1")
    options = ("--private_key", keys / PRIVATE, "--signature", folder / "model.sig")
    done = run(programs / "model_signing", "sign", "key", folder, *options)
    assert done.returncode == 0, done.stderr
    compared = compare_folder(folder, trust_in(key), NOW)
    assert [(file.name, file.difference) for file in compared] == [("weights", None)]


def test_cyclonedx_accepts_our_bill_of_materials(programs: Path, tmp_path: Path) -> None:
    sign_folder(tmp_path / "model", new_key(tmp_path / "keys"))
    bill = tmp_path / "model" / "bom.cdx.json"
    done = run(programs / "python", "-c", VALIDATE, bill)
    assert (done.returncode, done.stderr) == (0, "")
    bill.write_text(bill.read_text().replace('"machine-learning-model"', '"machine"'))
    assert run(programs / "python", "-c", VALIDATE, bill).returncode == 1


def test_in_toto_accepts_our_statement_of_the_lineage(programs: Path, tmp_path: Path) -> None:
    sign_folder(tmp_path / "model", new_key(tmp_path / "keys"))
    bundle = tmp_path / "model" / "lineage.intoto.json"
    done = run(programs / "python", "-c", VALIDATE_STATEMENT, bundle)
    assert (done.returncode, done.stdout) == (0, "2 3\n"), done.stderr
    envelope = json.loads(bundle.read_text())
    statement = json.loads(b64decode(envelope["dsseEnvelope"]["payload"]))
    for change, why in (
        ({"subject": []}, "At least one subject required"),
        ({"predicate": {**statement["predicate"], "verdict": "pass"}}, 'no field named "verdict"'),
    ):
        payload = b64encode(json.dumps({**statement, **change}).encode()).decode()
        bundle.write_text(json.dumps({"dsseEnvelope": {"payload": payload}}))
        refused = run(programs / "python", "-c", VALIDATE_STATEMENT, bundle)
        assert (refused.returncode, why in refused.stderr) == (1, True), refused.stderr

"""A signed version in a folder, and keys and certificates for tests."""

import hashlib
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from schemas.model import Lineage, VersionTerms
from tunery.provenance.envelopes import signed_bundle
from tunery.provenance.keys import SigningKey, Trust, create_key, load_key
from tunery.provenance.materials import bill_of_materials
from tunery.provenance.statements import (
    LINEAGE_STATEMENT,
    MATERIALS,
    SIGNATURE,
    files_statement,
    lineage_statement,
)

NOW = datetime(2026, 11, 23, tzinfo=UTC)
TERMS = VersionTerms(
    model_id="ft:small:acme:friendly:1",
    series="acme/small/friendly",
    lineage=Lineage(
        job_id="ftjob-1",
        base_id="small",
        base_sha256="b" * 64,
        dataset_version="v1",
        training_sha256="d" * 64,
        config_sha256="c" * 64,
        steps=7,
        verdict="pass",
        scores_sha256="e" * 64,
        environment={"lock": "f" * 64, "torch": "2"},
        configuration="a" * 64,
        start_id="ft:small:acme:friendly:0",
        start_sha256="0" * 64,
    ),
)
CONFIG = b'{\n  "base_model_name_or_path": "small",\n  "r": 4,\n  "revision": null\n}\n'
TRAINED = {"adapter_config.json": CONFIG, "adapter_model.safetensors": b"weights"}


def new_key(folder: Path) -> SigningKey:
    create_key(folder)
    key = load_key(folder)
    assert key is not None
    return key


def trust_in(key: SigningKey) -> Trust:
    return Trust(keys=(key.public,))


def sign_folder(folder: Path, key: SigningKey, terms: VersionTerms = TERMS) -> None:
    """The files of a version, as the registry publishes them."""
    folder.mkdir(exist_ok=True)
    trained = {name: hashlib.sha256(data).hexdigest() for name, data in TRAINED.items()}
    files = {
        **TRAINED,
        "lineage.json": json.dumps(
            {"model_id": terms.model_id, "lineage": msgspec.to_builtins(terms.lineage)}
        ).encode(),
        MATERIALS: bill_of_materials(terms, trained),
        LINEAGE_STATEMENT: signed_bundle(lineage_statement(terms, trained), key),
    }
    hashed = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    files[SIGNATURE] = signed_bundle(files_statement(terms.model_id, hashed), key)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None,
    *,
    days: int = 10,
    signs: bool = True,
) -> x509.Certificate:
    """A certificate around NOW; without an issuer that of an authority, by itself."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(signs, False, False, False, False, issuer is None, False, False, False)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer[0].subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=10))
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key if issuer is None else issuer[1], hashes.SHA256())
    )


def write_chain(file: Path, *certificates: x509.Certificate) -> Path:
    pem = (entry.public_bytes(serialization.Encoding.PEM) for entry in certificates)
    file.write_bytes(b"".join(pem))
    return file

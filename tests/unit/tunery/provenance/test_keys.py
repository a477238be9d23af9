"""Keys of a registry, and certificates that are expired, unknown or for something else."""

import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.unit.tunery.provenance.signed import NOW, certificate, new_key, write_chain
from tunery.provenance.envelopes import read_bundle, signed_bundle
from tunery.provenance.keys import (
    CERTIFICATES,
    PRIVATE,
    PUBLIC,
    KeyUnusable,
    SigningKey,
    Trust,
    Untrusted,
    create_key,
    load_key,
    read_trust,
)

STATEMENT = {"_type": "https://in-toto.io/Statement/v1"}


def private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "signing"
    assert load_key(folder) is None
    key = new_key(folder)
    create_key(folder)
    again = load_key(folder)
    assert again is not None
    assert again.public == key.public
    assert stat.S_IMODE((folder / PRIVATE).stat().st_mode) == 0o600
    assert read_trust([folder / PUBLIC]) == Trust(keys=(key.public,))


def test_the_same_statement_and_key_give_the_same_bytes(tmp_path: Path) -> None:
    key = new_key(tmp_path)
    assert signed_bundle(STATEMENT, key) == signed_bundle(STATEMENT, key)


@pytest.mark.parametrize("content", [b"", b"-----BEGIN PRIVATE KEY-----\nx\n", b"\xff" * 10])
def test_a_damaged_key_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / PRIVATE).write_bytes(content)
    with pytest.raises(KeyUnusable, match=PRIVATE):
        load_key(tmp_path)
    with pytest.raises(KeyUnusable, match="neither a public key nor certificates"):
        read_trust([tmp_path / PRIVATE])


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP384R1()), rsa.generate_private_key(65_537, 2_048)]
)
def test_a_key_of_another_kind_is_refused(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, tmp_path: Path
) -> None:
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / PRIVATE).write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    with pytest.raises(KeyUnusable, match="P-256"):
        load_key(tmp_path)


def test_a_certificate_of_another_key_is_refused(tmp_path: Path) -> None:
    new_key(tmp_path)
    write_chain(tmp_path / CERTIFICATES, certificate("ca", private_key()))
    with pytest.raises(KeyUnusable, match=r"not that of key\.pem"):
        load_key(tmp_path)


def test_a_certificate_is_believed_for_the_authority_behind_it(tmp_path: Path) -> None:
    root, own = private_key(), new_key(tmp_path)
    authority = certificate("ca", root)
    leaf = certificate("registry", own.private, (authority, root))
    write_chain(tmp_path / CERTIFICATES, leaf)
    key = load_key(tmp_path)
    assert key is not None
    trust = read_trust([write_chain(tmp_path / "ca.pem", authority)])
    assert read_bundle(signed_bundle(STATEMENT, key), trust, NOW) == STATEMENT
    with pytest.raises(Untrusted, match=r"CN=registry expired on 2026-12-03"):
        read_bundle(signed_bundle(STATEMENT, key), trust, NOW + timedelta(days=11))
    with pytest.raises(Untrusted, match=r"CN=registry is valid from 2026-11-13 on"):
        read_bundle(signed_bundle(STATEMENT, key), trust, NOW - timedelta(days=11))
    with pytest.raises(Untrusted, match="no trusted certificate stands behind"):
        read_bundle(signed_bundle(STATEMENT, key), Trust(keys=(own.public,)), NOW)


def test_an_expired_authority_and_one_that_is_none_are_refused() -> None:
    root, middle, own = private_key(), private_key(), private_key()
    expired = certificate("ca", root, days=-1)
    leaf = certificate("registry", own, (expired, root))
    signed = signed_bundle(STATEMENT, SigningKey(own, (leaf,)))
    with pytest.raises(Untrusted, match="CN=ca expired on 2026-11-22"):
        read_bundle(signed, Trust(certificates=(expired,)), NOW)
    authority = certificate("ca", root)
    no_authority = certificate("middle", middle, (authority, root))
    forged = certificate("registry", own, (no_authority, middle))
    signed = signed_bundle(STATEMENT, SigningKey(own, (forged, no_authority)))
    with pytest.raises(Untrusted, match="no trusted certificate"):
        read_bundle(signed, Trust(certificates=(authority,)), NOW)


def test_a_certificate_that_is_not_for_signatures_is_refused() -> None:
    root, own = private_key(), private_key()
    authority = certificate("ca", root)
    leaf = certificate("registry", own, (authority, root), signs=False)
    signed = signed_bundle(STATEMENT, replace(SigningKey(own), certificates=(leaf,)))
    with pytest.raises(Untrusted, match="not for digital signatures"):
        read_bundle(signed, Trust(certificates=(authority,)), NOW)

"""Bundles: what is no signed statement is refused with a reason, never with a traceback."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.tunery.provenance.signed import NOW, new_key, trust_in
from tunery.provenance.envelopes import BUNDLE_BYTES_MAX, read_bundle, signed_bundle, signed_bytes
from tunery.provenance.keys import SigningKey, Untrusted

STATEMENT = {"_type": "https://in-toto.io/Statement/v1", "subject": []}


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return new_key(tmp_path)


def test_a_statement_is_read_as_it_was_signed(key: SigningKey) -> None:
    assert read_bundle(signed_bundle(STATEMENT, key), trust_in(key), NOW) == STATEMENT


def test_what_is_signed_is_the_encoding_of_dsse() -> None:
    assert signed_bytes(b"{}") == b"DSSEv1 28 application/vnd.in-toto+json 2 {}"


def _payload(bundle: dict[str, Any]) -> None:
    forged = json.dumps({**STATEMENT, "subject": [1]}).encode()
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(forged).decode()


def _second(bundle: dict[str, Any]) -> None:
    bundle["dsseEnvelope"]["signatures"] *= 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_payload, "one of them changed"),
        (_second, "with one signature"),
        (lambda bundle: bundle.update(mediaType="text/plain"), "no bundle of sigstore"),
        (lambda bundle: bundle["dsseEnvelope"].update(payload="*"), "base 64"),
        (lambda bundle: bundle["dsseEnvelope"].update(payload=[]), "no bundle of sigstore"),
        (lambda bundle: bundle.pop("verificationMaterial"), "no bundle of sigstore"),
        (
            lambda bundle: bundle.update(
                verificationMaterial={"x509CertificateChain": {"certificates": []}}
            ),
            "0 certificates",
        ),
    ],
)
def test_another_bundle_is_refused(
    change: Callable[[dict[str, Any]], None], why: str, key: SigningKey
) -> None:
    bundle = json.loads(signed_bundle(STATEMENT, key))
    change(bundle)
    with pytest.raises(Untrusted, match=why):
        read_bundle(json.dumps(bundle).encode(), trust_in(key), NOW)


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, bytes(BUNDLE_BYTES_MAX + 1)])
def test_what_is_no_json_is_refused(data: bytes, key: SigningKey) -> None:
    with pytest.raises(Untrusted):
        read_bundle(data, trust_in(key), NOW)


def test_a_signed_text_that_is_no_statement_is_refused(key: SigningKey) -> None:
    with pytest.raises(Untrusted, match="no statement of in-toto"):
        read_bundle(signed_bundle({"_type": "x"}, key), trust_in(key), NOW)

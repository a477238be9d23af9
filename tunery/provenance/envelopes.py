"""Statements of in-toto in bundles of sigstore 0.3, as OpenSSF's model-signing 1.1 writes them.

Its own command line verifies them, by a key or by certificates. Nothing here asks a network: there
is no transparency log.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from tunery.provenance.keys import SigningKey, Trust, Untrusted, check_signature, fingerprint

BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD: Final = "application/vnd.in-toto+json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
BUNDLE_BYTES_MAX: Final = 16 << 20


def signed_bundle(statement: Mapping[str, Any], key: SigningKey) -> bytes:
    """A statement with its signature. The same statement and key give the same bytes."""
    payload = json.dumps(statement, sort_keys=True).encode()
    material: dict[str, Any] = {"tlogEntries": []}
    if key.certificates:
        chain = [{"rawBytes": _text(cert.public_bytes(Encoding.DER))} for cert in key.certificates]
        material["x509CertificateChain"] = {"certificates": chain}
    else:
        material["publicKey"] = {"hint": fingerprint(key.public)}
    bundle = {
        "mediaType": BUNDLE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": _text(payload),
            "payloadType": PAYLOAD,
            "signatures": [{"sig": _text(key.sign(signed_bytes(payload))), "keyid": ""}],
        },
    }
    return (json.dumps(bundle, indent=2, sort_keys=True) + "\n").encode()


def read_bundle(data: bytes, trust: Trust, at: datetime) -> dict[str, Any]:
    """The statement of a bundle that is signed by whom we trust.

    at: when certificates must be valid

    Raises Untrusted for another signer, another statement, or what is no bundle.
    """
    try:
        if len(data) > BUNDLE_BYTES_MAX:
            raise Untrusted(f"a signature of more than {BUNDLE_BYTES_MAX} bytes is none")
        bundle = json.loads(data)
        material, envelope = bundle["verificationMaterial"], bundle["dsseEnvelope"]
        if bundle["mediaType"] != BUNDLE or envelope["payloadType"] != PAYLOAD:
            raise Untrusted("it is no bundle of sigstore 0.3 with a statement of in-toto")
        payload = _bytes(envelope["payload"])
        (signature,) = envelope["signatures"]
        public = _signer(material, trust, at)
        check_signature(public, _bytes(signature["sig"]), signed_bytes(payload))
        statement = json.loads(payload)
        if statement["_type"] != STATEMENT:
            raise Untrusted(f"{statement['_type']!r} is no statement of in-toto 1")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Untrusted("it is no bundle of sigstore 0.3 with one signature") from error
    return dict(statement)


def signed_bytes(payload: bytes) -> bytes:
    """Return the bytes to sign: DSSE's pre-authentication encoding."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)


def _signer(material: Mapping[str, Any], trust: Trust, at: datetime) -> ec.EllipticCurvePublicKey:
    if "x509CertificateChain" in material:
        listed = material["x509CertificateChain"]["certificates"]
        chain = [x509.load_der_x509_certificate(_bytes(entry["rawBytes"])) for entry in listed]
        return trust.key_of_chain(chain, at)
    return trust.key_of_hint(material["publicKey"]["hint"])


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Untrusted("its signature is not in base 64") from error

"""The key of a registry, and the keys and certificates that a verifier trusts.

Keys are of the curve P-256. Certificates give a key an owner and an end.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PRIVATE: Final = "key.pem"
PUBLIC: Final = "public.pem"
CERTIFICATES: Final = "certificates.pem"  # of the key first, then of its issuers
CHAIN_MAX: Final = 8
PEM_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"


class Untrusted(Exception):
    """A signed statement cannot be trusted; the message says why."""


class KeyUnusable(Exception):
    """A file holds no key that can be used; the message names it and what to do."""


@dataclass(frozen=True)
class SigningKey:
    private: ec.EllipticCurvePrivateKey = field(repr=False)
    certificates: tuple[x509.Certificate, ...] = ()

    @property
    def public(self) -> ec.EllipticCurvePublicKey:
        return self.private.public_key()

    def sign(self, data: bytes) -> bytes:
        """A signature that is equal each time."""
        return self.private.sign(data, ec.ECDSA(hashes.SHA256(), deterministic_signing=True))


@dataclass(frozen=True)
class Trust:
    """Keys and certificates of whom one believes."""

    keys: tuple[ec.EllipticCurvePublicKey, ...] = ()
    certificates: tuple[x509.Certificate, ...] = ()

    def key_of_hint(self, hint: str) -> ec.EllipticCurvePublicKey:
        """The trusted key with this fingerprint. Raises Untrusted."""
        for key in self.keys:
            if fingerprint(key) == hint:
                return key
        known = ", ".join(fingerprint(key)[:16] for key in self.keys) or "none"
        raise Untrusted(f"it is signed with the key {hint[:16]}; the trusted keys are: {known}")

    def key_of_chain(
        self, chain: Sequence[x509.Certificate], at: datetime
    ) -> ec.EllipticCurvePublicKey:
        """The key of the first certificate, which must lead to a trusted one. Raises Untrusted."""
        if not 1 <= len(chain) <= CHAIN_MAX:
            raise Untrusted(f"it has {len(chain)} certificates, not 1 to {CHAIN_MAX}")
        try:
            usage = chain[0].extensions.get_extension_for_class(x509.KeyUsage)
        except x509.ExtensionNotFound:
            usage = None
        if usage is None or not usage.value.digital_signature:
            raise Untrusted("the certificate of its key is not for digital signatures")
        for number, certificate in enumerate(chain):
            _check_time(certificate, at)
            if certificate in self.certificates:
                return _public_key(chain[0].public_key(), "the certificate of the signature")
            issuer = _issuer_of(certificate, (*chain[number + 1 :][:1], *self.certificates))
            if issuer is None:
                break
            _check_time(issuer, at)
            if issuer in self.certificates:
                return _public_key(chain[0].public_key(), "the certificate of the signature")
        owner = chain[0].subject.rfc4514_string()
        raise Untrusted(f"no trusted certificate stands behind that of {owner}")


def check_signature(key: ec.EllipticCurvePublicKey, signature: bytes, data: bytes) -> None:
    """Raises Untrusted unless the owner of the key signed the data."""
    try:
        key.verify(signature, data, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        raise Untrusted("its signature does not fit what it signs: one of them changed") from None


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """SHA-256 of a public key as PEM, in hex."""
    return hashlib.sha256(public_pem(key)).hexdigest()


def public_pem(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def create_key(folder: Path) -> None:
    """Make the key of a registry unless the folder has one: `key.pem`, and `public.pem` of it."""
    private = folder / PRIVATE
    if private.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / PUBLIC).write_bytes(public_pem(key.public_key()))
    part = private.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    with part.open("wb") as file:
        file.write(pem)
        file.flush()
        os.fsync(file.fileno())
    part.replace(private)


def load_key(folder: Path) -> SigningKey | None:
    """The key of a folder with its certificates; None: there is none. Raises KeyUnusable."""
    private = folder / PRIVATE
    try:
        key = serialization.load_pem_private_key(private.read_bytes(), None)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise KeyUnusable(f"{private} is no private key as PEM; restore it: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise KeyUnusable(f"{private} holds no key of the curve P-256; replace it")
    _public_key(key.public_key(), str(private))
    chain = folder / CERTIFICATES
    certificates = tuple(_certificates(chain)) if chain.is_file() else ()
    if certificates and certificates[0].public_key() != key.public_key():
        raise KeyUnusable(f"{chain}: its first certificate is not that of {private.name}")
    return SigningKey(key, certificates)


def read_trust(files: Sequence[Path]) -> Trust:
    """Trust in public keys and certificates, each a file as PEM. Raises KeyUnusable."""
    keys: list[ec.EllipticCurvePublicKey] = []
    certificates: list[x509.Certificate] = []
    for file in files:
        try:
            data = file.read_bytes()
            if PEM_CERTIFICATE in data:
                certificates += _certificates(file)
            else:
                keys.append(_public_key(serialization.load_pem_public_key(data), str(file)))
        except (OSError, ValueError) as error:
            text = f"{file} holds neither a public key nor certificates as PEM: {error}"
            raise KeyUnusable(text) from error
    return Trust(tuple(keys), tuple(certificates))


def _certificates(file: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(file.read_bytes())
    except (OSError, ValueError) as error:
        raise KeyUnusable(f"{file} holds no certificates as PEM: {error}") from error


def _public_key(key: object, where: str) -> ec.EllipticCurvePublicKey:
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise KeyUnusable(f"{where} holds no key of the curve P-256; replace it")
    return key


def _issuer_of(
    certificate: x509.Certificate, candidates: Sequence[x509.Certificate]
) -> x509.Certificate | None:
    """The authority that issued a certificate, None: none of them did."""
    for issuer in candidates:
        try:
            constraints = issuer.extensions.get_extension_for_class(x509.BasicConstraints)
            certificate.verify_directly_issued_by(issuer)
        except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
            continue
        if constraints.value.ca:
            return issuer
    return None


def _check_time(certificate: x509.Certificate, at: datetime) -> None:
    owner = certificate.subject.rfc4514_string()
    if at > certificate.not_valid_after_utc:
        end = certificate.not_valid_after_utc
        raise Untrusted(f"the certificate of {owner} expired on {end:%Y-%m-%d}")
    if at < certificate.not_valid_before_utc:
        begin = certificate.not_valid_before_utc
        raise Untrusted(f"the certificate of {owner} is valid from {begin:%Y-%m-%d} on")

"""The self-signed certificate of one lease, known to its members alone."""

import datetime
import ssl
from pathlib import Path
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

VALID: Final = datetime.timedelta(days=3)  # longer than a term, and clocks may differ


class LeaseCertificate(NamedTuple):
    """Certificate and private key of a lease, in PEM."""

    certificate: str
    key: str


def new_certificate(name: str, now: datetime.datetime) -> LeaseCertificate:
    """A certificate with a fresh key."""
    key = ec.generate_private_key(ec.SECP256R1())
    common = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(common)
        .issuer_name(common)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - VALID)
        .not_valid_after(now + VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    text = certificate.public_bytes(serialization.Encoding.PEM)
    return LeaseCertificate(text.decode("ascii"), secret.decode("ascii"))


def server_context(folder: Path, own: LeaseCertificate) -> ssl.SSLContext:
    """TLS context of who listens; the key is in a file of the folder for a moment."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    path = folder / "relay.pem"
    path.touch(mode=0o600)
    try:
        path.write_text(own.key + own.certificate, "ascii")
        context.load_cert_chain(path)
    finally:
        path.unlink()
    return context

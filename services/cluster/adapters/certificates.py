"""The authority of one run of an agent, which signs its own certificate and those of its pods.

Its key is in memory alone, so what it has signed counts for nothing once the agent has ended.
"""

import datetime
import ipaddress
import ssl
import tempfile
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

SKEW: Final = datetime.timedelta(hours=1)  # by which clocks of nodes may differ
VALID: Final = datetime.timedelta(days=3_650)  # they end with their agent, which may run for long
CA_FILE, CERTIFICATE_FILE, KEY_FILE = "ca.crt", "tls.crt", "tls.key"


class Authority:
    """Signs certificates of servers and clients."""

    def __init__(self, now: datetime.datetime) -> None:
        self._now, self._key = now, ec.generate_private_key(ec.SECP256R1())
        self._name = _name("tunery cluster agent")
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> str:
        """Certificate of the authority, in PEM."""
        return _pem(self._certificate)

    def client(self, name: str) -> dict[str, str]:
        """Return the files of a client: its certificate, its key, and the authority's own."""
        certificate, key = self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, ())
        return {CA_FILE: self.certificate, CERTIFICATE_FILE: certificate, KEY_FILE: key}

    def server_context(self, host: str) -> ssl.SSLContext:
        """TLS context of a server with this name or address, which requires our clients."""
        # A common name has 64 characters at most; clients compare the alternative name alone.
        certificate, key = self._issue("pods", ExtendedKeyUsageOID.SERVER_AUTH, (host,))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate)
        with tempfile.TemporaryDirectory() as folder:  # the library reads files alone
            path = Path(folder) / "server.pem"
            path.touch(mode=0o600)
            path.write_text(key + certificate, "ascii")
            context.load_cert_chain(path)
        return context

    def _issue(
        self, name: str, usage: x509.ObjectIdentifier, hosts: tuple[str, ...]
    ) -> tuple[str, str]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(_name(name), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
        )
        if hosts:
            names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return _pem(builder.sign(self._key, hashes.SHA256())), secret.decode("ascii")

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
            .not_valid_before(self._now - SKEW)
            .not_valid_after(self._now + VALID)
        )


def client_context(folder: Path) -> ssl.SSLContext:
    """TLS context of a client with the files of `Authority.client`. Raises OSError."""
    context = ssl.create_default_context(cafile=folder / CA_FILE)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(folder / CERTIFICATE_FILE, folder / KEY_FILE)
    return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")

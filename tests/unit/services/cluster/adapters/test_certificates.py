"""Certificates of an agent and its pods."""

import datetime
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from services.cluster.adapters.certificates import Authority, client_context

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)


def test_a_pod_has_its_name_from_its_certificate() -> None:
    authority = Authority(NOW)
    files = authority.client("t-default-7-a1")
    certificate = x509.load_pem_x509_certificate(files["tls.crt"].encode())
    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert name.value == "t-default-7-a1"
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files["ca.crt"].encode()))
    assert files["ca.crt"] == authority.certificate


@pytest.mark.parametrize("host", ["127.0.0.1", "agent.tunery.svc"])
def test_security_a_server_wants_certificates_of_its_own_authority(host: str) -> None:
    context = Authority(NOW).server_context(host)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert len(context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    "host", ["::1", "agent.a-namespace-with-a-long-name-of-a-team.svc.cluster.the-domain.example"]
)
def test_a_pod_trusts_an_agent_by_its_name_however_long(host: str, tmp_path: Path) -> None:
    authority = Authority(datetime.datetime.now(datetime.UTC))
    for name, content in authority.client("t-default-7-a1").items():
        (tmp_path / name).write_text(content)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = authority.server_context(host).wrap_bio(to_server, to_client, server_side=True)
    client = client_context(tmp_path).wrap_bio(to_client, to_server, server_hostname=host)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert (client.version(), server.version()) == ("TLSv1.3", "TLSv1.3")
    assert server.getpeercert() is not None


def test_bad_input_certificates_hold_where_the_clock_of_a_node_is_an_hour_late() -> None:
    authority = Authority(NOW)
    for pem in authority.client("t-default-7-a1")["tls.crt"], authority.certificate:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        assert certificate.not_valid_before_utc <= NOW - datetime.timedelta(hours=1)


def test_certificates_last_as_long_as_an_agent_may_run() -> None:
    authority = Authority(NOW)
    for pem in authority.client("t-default-7-a1")["tls.crt"], authority.certificate:
        certificate = x509.load_pem_x509_certificate(pem.encode())
        assert certificate.not_valid_after_utc > NOW + datetime.timedelta(days=5 * 365)


def test_a_pod_without_its_files_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        client_context(tmp_path)

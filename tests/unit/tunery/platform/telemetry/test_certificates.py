"""Ends of certificates, as a scrape gets them."""

import os
from pathlib import Path

import pytest
from cryptography import x509

from tests.certificates import Authority
from tunery.platform.telemetry.certificates import ENDS, certificate_ends, first_end


def ends_of(path: Path) -> float:
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def test_the_earliest_expiry_of_a_files_certificates_is_reported(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own, _ = authority.issue("billing")
    both = tmp_path / "both.pem"
    both.write_bytes(own.read_bytes() + (tmp_path / "ca.pem").read_bytes())
    assert first_end(both) == min(ends_of(own), ends_of(tmp_path / "ca.pem"))
    (value,) = certificate_ends({"kafka_ca_file": both})()
    assert (value.metric, value.labels, value.value) == (ENDS, ("kafka_ca_file",), first_end(both))


def test_a_renewed_file_is_read_again_and_the_same_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, _ = Authority(tmp_path).issue("billing")
    reads = []
    real = first_end

    def read(file: Path) -> float:
        reads.append(file)
        return real(file)

    monkeypatch.setattr("tunery.platform.telemetry.certificates.first_end", read)
    tell = certificate_ends({"kafka_certificate_file": own})
    list(tell()), list(tell())
    assert len(reads) == 1
    os.utime(own, ns=(1, 1))
    list(tell())
    assert len(reads) == 2


def test_a_process_without_files_tells_nothing() -> None:
    assert list(certificate_ends({})()) == []

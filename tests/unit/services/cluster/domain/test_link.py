"""Requests of a pod are limited to its own lease."""

import pytest
from msgspec.structs import replace

from schemas.lease_keys import RequestLeaseKeys
from schemas.pool import ConfirmFreed, ReportCheckpoint, ReportExit, Token
from schemas.telemetry import LogLine
from schemas.training import BlobFile, Checkpoint, EvalResult
from services.cluster.domain.link import (
    PodRefused,
    UrlRequest,
    check_fact,
    check_telemetry,
    check_url,
)
from tests.unit.services.trainer.domain.test_evolve import grant

GRANT = grant()
TENANT, JOB = GRANT.tenant, GRANT.job_id
EXIT = ReportExit(token=GRANT.token, incarnation="a1", outcome="succeeded", elapsed_ms=1)
KEYS = RequestLeaseKeys(lease=GRANT.token.lease, incarnation="a1", public_key="00")
FREED = ConfirmFreed(token=GRANT.token, node_id=GRANT.node_id, incarnation="a1")


def test_it_says_what_happens_to_its_lease() -> None:
    for fact in (EXIT, KEYS, FREED):
        check_fact(GRANT, "a1", fact)


@pytest.mark.parametrize(
    "fact",
    [
        replace(EXIT, token=Token(pool=GRANT.token.pool, lease=99)),
        replace(EXIT, token=Token(pool="other", lease=GRANT.token.lease)),
        replace(EXIT, incarnation="b2"),
        replace(KEYS, lease=99),
        replace(KEYS, incarnation="b2"),
        replace(FREED, node_id="another"),
    ],
)
def test_security_it_says_nothing_of_another_lease(
    fact: ReportExit | RequestLeaseKeys | ConfirmFreed,
) -> None:
    with pytest.raises(PodRefused):
        check_fact(GRANT, "a1", fact)


OWN = f"t/{TENANT}/adapters/{JOB}/{GRANT.attempt}/ab/abc"
FILE = BlobFile(name="out/adapter.safetensors", blob=OWN, sha256="ab" * 32, bytes=5)


def reports_of(file: BlobFile) -> tuple[ReportCheckpoint, ReportExit]:
    """A checkpoint and a result with this file."""
    checkpoint = Checkpoint(
        attempt=GRANT.attempt,
        step=1,
        epoch_ppm=0,
        tokens=1,
        manifest_sha256="ab" * 32,
        files=(file,),
        captured_ms=1,
    )
    report = ReportCheckpoint(token=GRANT.token, incarnation="a1", checkpoint=checkpoint)
    return report, replace(EXIT, result=EvalResult(scores=file))


def test_it_reports_files_of_its_attempt() -> None:
    for report in reports_of(FILE):
        check_fact(GRANT, "a1", report)


@pytest.mark.parametrize(
    "file",
    [
        replace(FILE, name="../../../etc/cron.d/x"),
        replace(FILE, name="/etc/cron.d/x"),
        replace(FILE, name=""),
        replace(FILE, blob=f"t/other/adapters/{JOB}/{GRANT.attempt}/ab/abc"),
        replace(FILE, blob=f"t/{TENANT}/adapters/other/{GRANT.attempt}/ab/abc"),
        replace(FILE, blob=f"{OWN}/../../../../../other/adapters/x"),
        replace(FILE, bytes=-1),
    ],
)
def test_security_it_reports_no_file_that_others_would_read_or_write_elsewhere(
    file: BlobFile,
) -> None:
    for report in reports_of(file):
        with pytest.raises(PodRefused):
            check_fact(GRANT, "a1", report)


def test_security_its_telemetry_is_of_its_attempt() -> None:
    line = LogLine(tenant=TENANT, job_id=JOB, attempt=GRANT.attempt, level="info", text="hello")
    check_telemetry(GRANT, line)
    for other in (replace(line, tenant="b"), replace(line, job_id="b"), replace(line, attempt=99)):
        with pytest.raises(PodRefused):
            check_telemetry(GRANT, other)


@pytest.mark.parametrize(
    ("method", "key", "may"),
    [
        ("GET", f"t/{TENANT}/prepared/x", True),
        ("GET", "benchmarks/x", True),
        ("GET", "t/other/prepared/x", False),
        ("GET", f"t/{TENANT}/../other/prepared/x", False),
        ("GET", f"t/{TENANT}x/prepared/x", False),
        ("GET", "snapshots/pool/x", False),
        ("PUT", f"t/{TENANT}/checkpoints/{JOB}/{GRANT.attempt}/ab/abc", True),
        ("PUT", f"t/{TENANT}/checkpoints/{JOB}/{GRANT.attempt + 1}/ab/abc", False),
        ("PUT", f"t/{TENANT}/checkpoints/other/{GRANT.attempt}/ab/abc", False),
        ("PUT", f"t/{TENANT}/models/{JOB}/{GRANT.attempt}/ab/abc", False),
        ("PUT", "benchmarks/x", False),
    ],
)
def test_security_it_reads_its_tenants_objects_and_writes_its_attempts(
    method: str, key: str, may: bool
) -> None:
    put = UrlRequest(method="PUT", key=key, size=5, sha256="ab" * 32)
    request = put if method == "PUT" else UrlRequest(method="GET", key=key)
    if may:
        check_url(GRANT, request)
        return
    with pytest.raises(PodRefused):
        check_url(GRANT, request)


@pytest.mark.parametrize(
    ("size", "sha256"),
    [(5, ""), (5, "no hash"), (5, "AB" * 32), (-1, "ab" * 32), (1 << 40, "ab" * 32)],
)
def test_security_it_stores_nothing_without_size_and_hash(size: int, sha256: str) -> None:
    with pytest.raises(PodRefused, match="its size and its SHA-256"):
        check_url(GRANT, UrlRequest(method="PUT", key=OWN, size=size, sha256=sha256))

"""Each finding of two reviews has a test that is named after it: security, and the first hour."""

import re
import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
COUNTS: Final = {"c": 2, "h": 5, "m": 7, "l": 12}  # findings: critical, high, medium, low
FINDINGS: Final = {f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)}
#: no test can show a change, because the finding stays as it is
WITHOUT_TEST: Final = {
    "l10": "hashes and sizes of files, hashes of keys and ids of tenants are on the log by design",
}
NAMED: Final = re.compile(r"^ *(?:async )?def test_security_([a-z]\d+)_", re.MULTILINE)
#: findings of the second first hour, and the public reports that it repeated
FIRST_HOUR: Final = {f"u{n}" for n in range(1, 29)}
REPORTS: Final = {f"report_{n}" for n in (1, 3, 4, 6, 10, 14, 15, 16, 17, 18)}
OF_FIRST_HOUR: Final = re.compile(r"^ *(?:async )?def test_first_hour2_(\w+)\(", re.MULTILINE)
NUMBER: Final = re.compile(r"(?:^|_)(u\d+|report_\d+)(?=_)")


def _tests() -> list[str]:
    """Return the text of each file of tests."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(".py")]
    return [file.read_text(encoding="utf-8") for file in files if file.is_file()]


def test_each_finding_of_the_security_review_has_a_test() -> None:
    tested = {finding for text in _tests() for finding in NAMED.findall(text)}
    assert tested == FINDINGS - WITHOUT_TEST.keys()


def test_each_finding_and_report_of_the_second_first_hour_has_a_test() -> None:
    names = [name for text in _tests() for name in OF_FIRST_HOUR.findall(text)]
    tested = {number for name in names for number in NUMBER.findall(name)}
    assert tested == FIRST_HOUR | REPORTS


def test_what_has_no_test_is_named_as_not_defended() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    not_defended = page.partition("## What is not defended")[2]
    for finding in WITHOUT_TEST:
        assert f"({finding.upper()})" in not_defended

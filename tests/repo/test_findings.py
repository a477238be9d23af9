"""Each finding of the security review of 2026-11-22 has a test that is named after it."""

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


def test_each_finding_of_the_security_review_has_a_test() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "tests"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [ROOT / name for name in listed.stdout.split("\0") if name.endswith(".py")]
    tested = {
        finding
        for file in files
        if file.is_file()
        for finding in NAMED.findall(file.read_text(encoding="utf-8"))
    }
    assert tested == FINDINGS - WITHOUT_TEST.keys()


def test_what_has_no_test_is_named_as_not_defended() -> None:
    page = (ROOT / "docs/explanation/security.md").read_text(encoding="utf-8")
    not_defended = page.partition("## What is not defended")[2]
    for finding in WITHOUT_TEST:
        assert f"({finding.upper()})" in not_defended

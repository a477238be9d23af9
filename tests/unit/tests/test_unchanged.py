"""A file of tests is left out only while nothing that its result comes from has changed."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.unchanged import ROOT, Dependencies, module_of

FILES: Final = {
    "tunery/__init__.py": "",
    "tunery/price.py": "RATE = 2",
    "tunery/bill.py": "from tunery.price import RATE",
    "tunery/other.py": "",
    "services/mail/__init__.py": "",
    "services/mail/__main__.py": "import tunery.other",
    "services/mail/letter.txt": "Dear",
    "docs/bill.md": "# Bills",
    "tests/conftest.py": "from tests.help import x\nimport tunery.other",
    "tests/help.py": "x = 1",
    "tests/unit/test_bill.py": "from tunery.bill import RATE",
    "tests/unit/test_mail.py": 'ARGV = ("-m", "services.mail")',
    "tests/unit/test_any.py": 'MODULE = f"services.{name}"',
    "tests/unit/test_page.py": 'PAGE = "docs/bill.md"',
}
IMPORTS: Final = {
    "tunery.bill": ("tunery.price",),
    "services.mail.__main__": ("tunery.other",),
    "tests.conftest": ("tests.help", "tunery.other"),
    "tests.unit.test_bill": ("tunery.bill",),
}
TESTS: Final = [name for name in FILES if "/test_" in name]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def digests(root: Path, options: str = "") -> dict[str, str]:
    imports = {module_of(name): IMPORTS.get(module_of(name), ()) for name in FILES}
    dependencies = Dependencies(root, FILES, imports)
    return {name: dependencies.digest(name, options) for name in TESTS}


@pytest.mark.parametrize(
    ("changed", "concerned"),
    [
        ("tunery/price.py", {"test_bill"}),  # imported by what it imports
        ("tunery/__init__.py", {"test_bill", "test_mail", "test_any"}),  # run by imports below it
        ("tunery/other.py", {"test_mail", "test_any"}),  # not those whose conftest imports it
        ("services/mail/__init__.py", {"test_mail", "test_any"}),
        ("services/mail/__main__.py", {"test_mail", "test_any"}),
        ("tests/unit/test_mail.py", {"test_mail"}),
        ("docs/bill.md", {"test_page"}),
        ("tests/conftest.py", {"test_bill", "test_mail", "test_any", "test_page"}),
        ("tests/help.py", {"test_bill", "test_mail", "test_any", "test_page"}),
        ("services/mail/letter.txt", {"test_bill", "test_mail", "test_any", "test_page"}),
    ],
)
def test_a_change_concerns_what_depends_on_it(
    root: Path, changed: str, concerned: set[str]
) -> None:
    before = digests(root)
    (root / changed).write_text(f"{FILES[changed]}\n# changed", encoding="utf-8")
    after = digests(root)
    assert {Path(name).stem for name in TESTS if before[name] != after[name]} == concerned


def test_options_of_the_run_concern_every_file(root: Path) -> None:
    every, some = digests(root), digests(root, "not long")
    assert all(every[name] != some[name] for name in TESTS)


RUN: Final = """\
import sys
from pathlib import Path
import pytest
from tests.unchanged import Dependencies, Unchanged

root = Path(sys.argv[1])
files = [path.relative_to(root).as_posix() for path in root.rglob("*.py")]
plugin = Unchanged(root, Dependencies(root, files, {}), "")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(root)], plugins=[plugin]))
"""


def run(root: Path) -> tuple[int, str]:
    argv = (sys.executable, "-c", RUN, str(root))
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_files_that_passed_are_left_out_and_counted_and_others_run_again(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]", encoding="utf-8")
    (tmp_path / "test_good.py").write_text("def test_good():\n    assert True\n", encoding="utf-8")
    (tmp_path / "test_bad.py").write_text("def test_bad():\n    assert False\n", encoding="utf-8")
    status, printed = run(tmp_path)
    assert (status, "1 failed, 1 passed" in printed) == (pytest.ExitCode.TESTS_FAILED, True)
    status, printed = run(tmp_path)
    assert (status, "1 failed in" in printed) == (pytest.ExitCode.TESTS_FAILED, True)
    assert "1 files of tests left out, 1 run" in printed
    (tmp_path / "test_bad.py").unlink()
    assert run(tmp_path)[0] == pytest.ExitCode.OK, "nothing is left to run"
    (tmp_path / "test_good.py").write_text("def test_good():\n    assert False\n", encoding="utf-8")
    assert "1 failed" in run(tmp_path)[1]

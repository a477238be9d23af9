"""The repository keeps its rules, and each rule is shown to catch a planted violation."""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import click
import pytest

from tests.repo import rules
from tests.repo.exceptions import SIZES
from tunery.cli.main import main

ROOT: Final = Path(__file__).resolve().parents[2]


def tracked(root: Path) -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def problem_of_make(words: list[str]) -> str:
    targets = rules.make_targets(ROOT)
    wrong = [word for word in words if "=" not in word and word not in targets]
    return f"make has no target {', '.join(wrong)}" if wrong else ""


def problem_of_tunery(words: list[str]) -> str:
    """Walk the words down the commands; then the options must be those of the last one."""
    command: click.Command = main
    context = click.Context(command, info_name="tunery")
    rest = list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            return f"tunery has no command `{name}`"
        command, context = found, click.Context(found, info_name=name, parent=context)
    known = {opt for one in command.get_params(context) for opt in (*one.opts, *one.secondary_opts)}
    wrong = [word for word in rest if word.startswith("-") and word.split("=")[0] not in known]
    return f"`{command.name}` has no option {', '.join(wrong)}" if wrong else ""


PROGRAMS: Final = {
    "make": problem_of_make,
    "tunery": problem_of_tunery,
    "git": lambda _words: "",
    "cd": lambda _words: "",
    "curl": lambda _words: "",
    "export": lambda _words: "",
}

CHECKS: Final[dict[str, Callable[[Path], Iterable[rules.Violation]]]] = {
    "sizes": lambda root: rules.check_sizes(root, SIZES),
    "names": rules.check_names,
    "purity": rules.check_purity,
    "service names": rules.check_service_names,
    "suppressions": rules.check_suppressions,
    "leftovers": rules.check_leftovers,
    "skips": rules.check_skips,
    "assertions": rules.check_assertions,
    "mirror": rules.check_mirror,
    "places": lambda root: rules.check_places(root, tracked(ROOT)),
    "documented": lambda root: rules.check_documented(root, PROGRAMS),
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_repository_keeps_the_rule(name: str) -> None:
    assert [str(one) for one in CHECKS[name](ROOT)] == []


# --- planted violations ----------------------------------------------------------------------


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def found(violations: Iterable[rules.Violation]) -> list[tuple[str, int]]:
    return [(one.path, one.line) for one in violations]


LONG_FUNCTION: Final = "def f():\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX


def test_long_files_functions_and_mains_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/a.py", "x = 1\n" * (rules.FILE_LINES_MAX + 1))
    plant(tmp_path, "services/b/__main__.py", "x = 1\n" * (rules.MAIN_LINES_MAX + 1))
    plant(tmp_path, "schemas/c.py", LONG_FUNCTION)
    plant(tmp_path, "schemas/good.py", "x = 1\n" * rules.FILE_LINES_MAX)
    assert found(rules.check_sizes(tmp_path, {})) == [
        ("schemas/c.py", 1),
        ("services/b/__main__.py", 1),
        ("tunery/a.py", 1),
    ]


def test_an_exception_only_shrinks(tmp_path: Path) -> None:
    plant(tmp_path, "schemas/c.py", LONG_FUNCTION)
    size = rules.FUNCTION_LINES_MAX + 1
    assert found(rules.check_sizes(tmp_path, {"schemas/c.py::f": size})) == []
    for exceptions in ({"schemas/c.py::f": size + 1}, {"schemas/c.py::f": size, "gone.py": 700}):
        assert len(found(rules.check_sizes(tmp_path, exceptions))) == 1


def test_empty_names_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/utils/rows.py", "")
    plant(tmp_path, "services/gateway/helpers.py", "")
    plant(tmp_path, "services/gateway/routes.py", "")
    assert found(rules.check_names(tmp_path)) == [
        ("services/gateway/helpers.py", 1),
        ("tunery/utils/rows.py", 1),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from os import environ",
        "import asyncio",
        "async def f() -> None: ...",
        "from urllib import request",
        "x = uuid.uuid4()",
        "x = datetime.now()",
        "x = open('a')",
        "import aiokafka.errors",
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        "schemas/a.py",
        "services/x/domain/deep/a.py",
        "services/x/react.py",
        "services/x/project/rows.py",
        "services/gateway/projection.py",
        "services/gateway/jobs/resolve.py",
        "services/gateway/files/tables.py",
        "tunery/plan/a.py",
    ],
)
def test_impure_lines_are_found(tmp_path: Path, name: str, line: str) -> None:
    plant(tmp_path, name, f"{line}\n")
    assert found(rules.check_purity(tmp_path)) == [(name, 1)]


def test_pure_lines_and_impure_places_are_left_alone(tmp_path: Path) -> None:
    pure = "import uuid\nfrom datetime import datetime\nx = uuid.uuid5(a, b)\nimport http\n"
    plant(tmp_path, "schemas/a.py", pure)
    plant(tmp_path, "services/x/effect.py", "import time\n")
    plant(tmp_path, "services/gateway/jobs/routes.py", "import time\n")
    assert found(rules.check_purity(tmp_path)) == []


def test_other_services_named_in_strings_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "services/trainer/effect.py", 'X = 1\nMODULE = "services.eval.score"\n')
    plant(tmp_path, "services/billing/app.py", 'FOLDER = "services.billing"\n')
    plant(tmp_path, "tunery/local/stack.py", 'MODULE = "services.eval"\n')
    assert found(rules.check_service_names(tmp_path)) == [("services/trainer/effect.py", 2)]


def test_bare_suppressions_are_found(tmp_path: Path) -> None:
    noqa, ignore = "# no" + "qa", "# type: " + "ignore"
    good = f"x = 1  {noqa}: S608  # our own name\n"
    bad = (f"x = 1  {noqa}\n", f"x = 1  {ignore}\n", f"x = 1  {noqa}: S608\n")
    plant(tmp_path, "tunery/a.py", good + "".join(bad))
    assert found(rules.check_suppressions(tmp_path)) == [("tunery/a.py", n) for n in (2, 3, 4)]


def test_leftovers_and_skips_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/a.py", "x = 1  # TO" + "DO later\n")
    skips = "@pytest.mark.skip" + "\n", "gpu = pytest.mark.skip" + "if(not cuda)\n"
    plant(tmp_path, "tests/unit/test_b.py", "".join(skips))
    assert found(rules.check_leftovers(tmp_path)) == [("tunery/a.py", 1)]
    assert found(rules.check_skips(tmp_path)) == [("tests/unit/test_b.py", 1)]


def test_tests_without_assertions_or_sources_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tests/unit/gone/test_a.py", "def test_a():\n    work()\n")
    plant(tmp_path, "tests/unit/tunery/test_b.py", "def test_b():\n    assert_equal(1, 1)\n")
    plant(tmp_path, "tunery/b.py", "")
    assert found(rules.check_assertions(tmp_path)) == [("tests/unit/gone/test_a.py", 1)]
    assert found(rules.check_mirror(tmp_path)) == [("tests/unit/gone/test_a.py", 1)]


def test_places_and_hosts_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "docs/a.md", "see /wo" + "rk/main\nand https://pypi" + ".org/simple\nfine\n")
    plant(tmp_path, "requirements.lock", "x==1 \\\n    # from https://files.example\n")
    plant(tmp_path, "fine.md", "../work/x, $HOME/work/, `GET /v1/work/`, https://docs.example\n")
    names = ["docs/a.md", "requirements.lock", "fine.md"]
    assert found(rules.check_places(tmp_path, names)) == [
        ("docs/a.md", 1),
        ("docs/a.md", 2),
        ("requirements.lock", 2),
    ]


def test_commands_that_do_not_exist_are_found(tmp_path: Path) -> None:
    block = (
        "# Title\n\n```console run\n$ make demo ARGS=--json\n$ make coffee\n$ tunery up --detach\n"
        "Tunery is ready\n$ tunery dance\n$ tunery up --fast   # quickly\n$ rm -rf x\n```\n"
        "```console\n$ tunery not-checked\n```\n"
        "Then `tunery job submit --model x`, `make tea` and\n`tunery sing --loud`.\n"
    )
    plant(tmp_path, "README.md", block)
    assert found(rules.check_documented(tmp_path, PROGRAMS)) == [
        ("README.md", 5),
        ("README.md", 8),
        ("README.md", 9),
        ("README.md", 10),
        ("README.md", 15),
        ("README.md", 16),
    ]

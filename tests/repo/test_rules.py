"""The repository keeps its rules, and each rule is shown to catch a planted violation."""

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import click
import pytest

from tests.repo import documentation, rules, wording
from tests.repo.tree import Tree, Violation
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
        subcommand = command.get_command(context, name)
        if subcommand is None:
            return f"tunery has no command `{name}`"
        command, context = subcommand, click.Context(subcommand, info_name=name, parent=context)
    known = {
        option
        for parameter in command.get_params(context)
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
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

CHECKS: Final[dict[str, Callable[[Tree], Iterable[Violation]]]] = {
    "sizes": rules.check_sizes,
    "names": rules.check_names,
    "purity": rules.check_purity,
    "service names": rules.check_service_names,
    "suppressions": rules.check_suppressions,
    "leftovers": rules.check_leftovers,
    "skips": rules.check_skips,
    "assertions": rules.check_assertions,
    "private names of Kafka's clients": rules.check_private_kafka_names,
    "folders and hosts": lambda tree: rules.check_folders_and_hosts(tree.root, tracked(tree.root)),
    "documented commands": lambda tree: rules.check_documented(tree.root, PROGRAMS),
    "identifiers": wording.check_identifiers,
    "names of classes": wording.check_class_names,
    "events of logs": wording.check_log_events,
    "beginnings of docstrings": wording.check_openings,
    "docstrings": documentation.check_docstrings,
    "back-ticks": documentation.check_back_ticks,
    "maps": documentation.check_maps,
}


@pytest.mark.parametrize("name", CHECKS)
def test_the_repository_keeps_the_rule(repository: Tree, name: str) -> None:
    assert [str(violation) for violation in CHECKS[name](repository)] == []


# --- planted violations ----------------------------------------------------------------------


def plant(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def positions(violations: Iterable[Violation]) -> list[tuple[str, int]]:
    return [(violation.path, violation.line) for violation in violations]


LONG_FUNCTION: Final = "def f():\n" + "    x = 1\n" * rules.FUNCTION_LINES_MAX


def test_long_files_functions_and_mains_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/a.py", "x = 1\n" * (rules.FILE_LINES_MAX + 1))
    plant(tmp_path, "services/b/__main__.py", "x = 1\n" * (rules.MAIN_LINES_MAX + 1))
    plant(tmp_path, "schemas/c.py", LONG_FUNCTION)
    plant(tmp_path, "schemas/good.py", "x = 1\n" * rules.FILE_LINES_MAX)
    assert positions(rules.check_sizes(Tree(tmp_path))) == [
        ("schemas/c.py", 1),
        ("services/b/__main__.py", 1),
        ("tunery/a.py", 1),
    ]


def test_empty_names_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/utils/rows.py", "")
    plant(tmp_path, "services/gateway/helpers.py", "")
    plant(tmp_path, "services/gateway/routes.py", "")
    assert positions(rules.check_names(Tree(tmp_path))) == [
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
        "services/gateway/views/projections/journals.py",
        "services/gateway/jobs/domain/resolve.py",
        "services/gateway/views/tables/files.py",
        "tunery/billing/a.py",
        "tunery/gate/a.py",
        "tunery/plan/a.py",
        "tunery/work/a.py",
    ],
)
def test_impure_lines_are_found(tmp_path: Path, name: str, line: str) -> None:
    plant(tmp_path, name, f"{line}\n")
    assert positions(rules.check_purity(Tree(tmp_path))) == [(name, 1)]


def test_pure_lines_and_impure_modules_are_allowed(tmp_path: Path) -> None:
    pure = "import uuid\nfrom datetime import datetime\nx = uuid.uuid5(a, b)\nimport http\n"
    plant(tmp_path, "schemas/a.py", pure)
    plant(tmp_path, "services/x/effect.py", "import time\n")
    plant(tmp_path, "services/gateway/jobs/routes.py", "import time\n")
    assert positions(rules.check_purity(Tree(tmp_path))) == []


def test_other_services_named_in_strings_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "services/trainer/effect.py", 'X = 1\nMODULE = "services.eval.score"\n')
    plant(tmp_path, "services/billing/app.py", 'FOLDER = "services.billing"\n')
    plant(tmp_path, "tunery/local/stack.py", 'MODULE = "services.eval"\n')
    assert positions(rules.check_service_names(Tree(tmp_path))) == [
        ("services/trainer/effect.py", 2)
    ]


def test_bare_suppressions_are_found(tmp_path: Path) -> None:
    noqa, ignore = "# no" + "qa", "# type: " + "ignore"
    good = f"x = 1  {noqa}: S608  # our own name\n"
    bad = (f"x = 1  {noqa}\n", f"x = 1  {ignore}\n", f"x = 1  {noqa}: S608\n")
    plant(tmp_path, "tunery/a.py", good + "".join(bad))
    assert positions(rules.check_suppressions(Tree(tmp_path))) == [
        ("tunery/a.py", n) for n in (2, 3, 4)
    ]


def test_leftovers_and_skips_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tunery/a.py", "x = 1  # TO" + "DO later\n")
    skips = "@pytest.mark.skip" + "\n", "gpu = pytest.mark.skip" + "if(not cuda)\n"
    plant(tmp_path, "tests/unit/test_b.py", "".join(skips))
    assert positions(rules.check_leftovers(Tree(tmp_path))) == [("tunery/a.py", 1)]
    assert positions(rules.check_skips(Tree(tmp_path))) == [("tests/unit/test_b.py", 1)]


def test_tests_without_assertions_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "tests/unit/gone/test_a.py", "def test_a():\n    work()\n")
    plant(tmp_path, "tests/unit/tunery/test_b.py", "def test_b():\n    assert_equal(1, 1)\n")
    assert positions(rules.check_assertions(Tree(tmp_path))) == [("tests/unit/gone/test_a.py", 1)]


@pytest.mark.parametrize(
    "line",
    [
        "client._conns.clear()",
        "self._producer._sender.close()",
        "from aiokafka._loop import x",
        "from confluent_kafka.cimpl import Consumer",
        "import confluent_kafka.aio._common",
    ],
)
def test_private_names_of_kafka_clients_are_found(tmp_path: Path, line: str) -> None:
    plant(tmp_path, "tunery/a.py", f"from aiokafka import AIOKafkaProducer\n{line}\n")
    plant(tmp_path, "tunery/b.py", "import aiokafka.errors\nself._sender.close()\nx.__class__\n")
    plant(tmp_path, "tunery/c.py", "other._conns.clear()\n")
    violations = positions(rules.check_private_kafka_names(Tree(tmp_path)))
    assert violations == [("tunery/a.py", 2)]


def test_machine_folders_and_hosts_are_found(tmp_path: Path) -> None:
    plant(tmp_path, "docs/a.md", "see /wo" + "rk/main\nand https://pypi" + ".org/simple\nfine\n")
    plant(tmp_path, "requirements.lock", "x==1 \\\n    # from https://files.example\n")
    plant(tmp_path, "fine.md", "../work/x, $HOME/work/, `GET /v1/work/`, https://docs.example\n")
    names = ["docs/a.md", "requirements.lock", "fine.md"]
    assert positions(rules.check_folders_and_hosts(tmp_path, names)) == [
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
    assert positions(rules.check_documented(tmp_path, PROGRAMS)) == [
        ("README.md", 5),
        ("README.md", 8),
        ("README.md", 9),
        ("README.md", 10),
        ("README.md", 15),
        ("README.md", 16),
    ]


# --- planted violations of the language and of docstrings ------------------------------------


def test_names_that_say_nothing_are_found(tmp_path: Path) -> None:
    source = (
        "found = 1\n"
        "class HouseRules:\n"
        "    wish_ms: int\n"
        "def told(it, job):\n"
        "    self.nobody = job\n"
        "for one in rows: pass\n"
        "lease = placement = 2\n"
    )
    plant(tmp_path, "tunery/a.py", source)
    plant(tmp_path, "tunery/crowds.py", "")
    plant(tmp_path, "tests/unit/tunery/test_a.py", "def test_it_finds_the_open_door(): pass\n")
    assert sorted(positions(wording.check_identifiers(Tree(tmp_path)))) == [
        *(("tunery/a.py", line) for line in (1, 2, 3, 4, 4, 5, 6)),
        ("tunery/crowds.py", 1),
    ]


def test_a_class_name_in_two_modules_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "schemas/job.py", "class Job: ...\nclass _Own: ...\n")
    plant(tmp_path, "services/x/rows.py", "class Row: ...\nclass Job: ...\nclass _Own: ...\n")
    plant(tmp_path, "tests/unit/test_job.py", "class Job: ...\n")
    assert positions(wording.check_class_names(Tree(tmp_path))) == [("services/x/rows.py", 2)]


def test_log_events_in_prose_are_found(tmp_path: Path) -> None:
    events = ('"lease.lost"', '"the lease was lost"', 'f"lease.{name}"', "EVENT", '"lost"')
    lines = "".join(f"log_event(LOG, WARNING, {event}, job_id=1)\n" for event in events)
    plant(tmp_path, "tunery/a.py", lines)
    expected = [("tunery/a.py", line) for line in (2, 3, 5)]
    assert positions(wording.check_log_events(Tree(tmp_path))) == expected


def test_docstrings_that_begin_with_a_pronoun_are_found(tmp_path: Path) -> None:
    source = (
        '"""Items of a list."""\n'
        'class Row:\n    """Of the table."""\n'
        'def size():\n    """Its size."""\n'
        'async def owner():\n    """Who has it."""\n'
    )
    plant(tmp_path, "tunery/a.py", source)
    plant(tmp_path, "tests/unit/test_a.py", '"""It works."""\n')
    expected = [("tests/unit/test_a.py", 1), ("tunery/a.py", 2), ("tunery/a.py", 6)]
    assert sorted(positions(wording.check_openings(Tree(tmp_path)))) == expected


def test_long_and_raising_functions_without_a_docstring_are_found(tmp_path: Path) -> None:
    long_body = "    x = 1\n" * documentation.LONG_LINES_MIN
    source = (
        f"def long():\n{long_body}"
        f"def _private():\n{long_body}"
        "class Store:\n    def save(self):\n        raise OSError\n"
        'def load():\n    """Raises OSError: always."""\n    raise OSError\n'
        "def short():\n    return 1\n"
    )
    plant(tmp_path, "tunery/a.py", source)
    save = 2 * (1 + documentation.LONG_LINES_MIN) + 2
    expected = [("tunery/a.py", 1), ("tunery/a.py", save)]
    assert positions(documentation.check_docstrings(Tree(tmp_path))) == expected


def test_names_in_back_ticks_that_do_not_exist_are_found(tmp_path: Path) -> None:
    source = (
        '"""Calls `serve` of `b`, reads `TUNERY_DATA_DIR`, sends `JobEnded.v2`."""\n'
        "class JobEnded:\n"
        '    """`serving` is called with `rows`."""\n'
        "    data_dir: str\n"
        '    def f(self): self.rows = "wire"\n'
        'def g():\n    """`wire` or `gone.py`."""\n'
    )
    plant(tmp_path, "tunery/a.py", source)
    plant(tmp_path, "tunery/b.py", "def serve(): ...\n")
    expected = [("tunery/a.py", 2), ("tunery/a.py", 6)]
    assert positions(documentation.check_back_ticks(Tree(tmp_path))) == expected


def test_files_that_do_not_say_what_they_are_and_maps_that_are_wrong_are_found(
    tmp_path: Path,
) -> None:
    text = '"""Things.\n\n`reader.py`  reads\n`gone.py`  is gone\nold  was renamed\n"""\n'
    plant(tmp_path, "tunery/ml/__init__.py", text)
    plant(tmp_path, "tunery/ml/reader.py", "")
    plant(tmp_path, "tunery/ml/writer.py", "X = 1\n")
    plant(tmp_path, "tunery/ml/disk/a.py", "")
    plant(tmp_path, "tunery/__init__.py", '"""`ml/` trains."""\n')
    violations = documentation.check_maps(Tree(tmp_path))
    assert [
        violation.text.partition("tunery/ml ")[2] or violation.path for violation in violations
    ] == [
        "tunery/ml/writer.py",
        "does not name `disk`",
        "does not name `writer`",
        "names `gone`, which is not there",
        "names `old`, which is not there",
    ]

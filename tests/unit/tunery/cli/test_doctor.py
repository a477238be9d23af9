"""`tunery doctor` prints fixes verbatim, and exits with 1 if there is any."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.tunery.runtime.tools.test_upgrade import process, state
from tunery.cli import doctor
from tunery.cli.doctor import diagnose, prepared
from tunery.cli.main import main
from tunery.local.doctor import Diagnosis
from tunery.local.paths import DataDir

WELL = Diagnosis("python", "3.11.7 [/usr/bin]")
ILL = Diagnosis("kafka", "missing at /x", "run `make setup` [again], and read " + "x" * 200)


@pytest.mark.parametrize(("findings", "exit_code"), [((WELL,), 0), ((WELL, ILL), 1), ((ILL,), 1)])
def test_one_problem_fails(
    findings: tuple[Diagnosis, ...],
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def examine(folders: DataDir) -> Iterator[Diagnosis]:
        assert folders.root == tmp_path
        yield from findings

    monkeypatch.setattr(doctor, "examine", examine)
    done = CliRunner().invoke(main, ["doctor", "--data-dir", str(tmp_path)])
    assert done.exit_code == exit_code
    for finding in findings:
        assert finding.detail in done.output, "details are not parsed as markup"
        assert f"    fix: {finding.fix}\n" in done.output or not finding.fix, (
            "fixes are not wrapped"
        )
    done = CliRunner().invoke(main, ["doctor", "--data-dir", str(tmp_path), "--json"])
    assert done.exit_code == exit_code
    assert [each["fix"] for each in json.loads(done.output)] == [each.fix for each in findings]


def test_topics_come_first() -> None:
    assert prepared([]).is_well
    behind = prepared(["tunery.levels.v1"])
    assert "tunery.levels.v1" in behind.detail
    assert behind.fix == "tunery kafka prepare"


def test_services_of_another_release_and_missing_ones_are_named() -> None:
    services, nodes, level = diagnose(state(process(1), missing=("scheduler",)), "0.2.0")
    assert services.detail == "no scheduler runs; billing@a:1 runs 0.1.0"
    assert services.fix == "start them with 0.2.0"
    assert nodes.is_well
    assert "reads up to level 1" in level.detail
    assert level.fix == "update these; until then you can still go back"


def test_the_last_step_is_to_finalize() -> None:
    services, _, level = diagnose(state(process(2)), "0.1.0")
    assert services.is_well
    assert level.fix == "tunery upgrade finalize"

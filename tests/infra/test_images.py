"""Containerfiles: rules that they keep, and steps that install what pyproject.toml says."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.infra.containerfiles import copied, dict_of, instructions, problems, read, stages
from tests.infra.variables import CONTROL_PLANE, INFRA, ROOT, unknown_in
from tunery.local.stack import AGENT
from tunery.platform.process import EXIT_BAD_SETTINGS

FOLDER: Final = INFRA / "images"
FILES: Final = sorted(FOLDER.glob("*.Containerfile"))
EXTRA: Final = re.compile(r"--extra (\w+)")
CONTROL: Final = FOLDER / "control.Containerfile"
PROJECT: Final[dict[str, Any]] = tomllib.loads(read(ROOT / "pyproject.toml"))


def test_there_is_a_file_for_each_image_of_the_chart() -> None:
    images = yaml.safe_load(read(INFRA / "helm" / "tunery" / "values.yaml"))["images"]
    assert {file.name.partition(".")[0] for file in FILES} == images.keys() - {"pullSecrets"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_keeps_the_rules(file: Path) -> None:
    assert list(problems(read(file))) == []
    assert unknown_in(read(file)) == set()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("3.11.14-slim-bookworm", "latest", "names no exact version"),
        ("3.11.14-slim-bookworm", "3-slim", "names no exact version"),
        ("USER 10001:10001", "USER tunery", "USER is not a number"),
        ("USER 10001:10001", "", "USER is not a number"),
        ("USER 10001:10001", "USER 10001:10001\nRUN true", "RUN after USER"),
        ('ENTRYPOINT ["python"]', "ENTRYPOINT python", "ENTRYPOINT is no list"),
        ("COPY schemas schemas", "ADD schemas schemas", "ADD"),
        (" --constraints requirements.lock", "", "not those of requirements.lock"),
        (" --no-install-recommends", "", "only recommended"),
        ("    && rm -rf /var/lib/apt/lists/*\n", "    && true\n", "lists of apt-get"),
        ("RUN apt-get update", "RUN curl -O x && apt-get update", "no hash is checked"),
    ],
)
def test_what_breaks_a_rule_is_found(old: str, new: str, problem: str) -> None:
    text = read(FOLDER / "train.Containerfile")
    assert old in text
    assert any(problem in said for said in problems(text.replace(old, new)))


def test_a_tool_without_version_is_found() -> None:
    text = re.sub(r"uv==\S+", "uv", read(CONTROL))
    assert list(problems(text)) == ["uv has no version"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_is_copied_is_there_and_reaches_the_build(file: Path) -> None:
    paths = copied(read(file))
    ignored = read(ROOT / ".dockerignore").splitlines()
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert {f"!{path}" for path in paths} == {line for line in ignored if line.startswith("!")}
    packages = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert set(packages) <= set(paths)


def test_images_install_the_extras_that_their_processes_import() -> None:
    """Torch is imported by `tunery.ml` alone, which the agent and the engine start. Faust is
    imported by the watcher, lightkube by the agent of a cluster, and confluent-kafka by all where
    a setting says so."""
    extras = {file.name.partition(".")[0]: EXTRA.findall(read(file)) for file in FILES}
    assert extras == {
        "control": ["watch", "cluster", "confluent"],
        "train": ["train", "serve", "confluent"],
    }
    assert set(extras["train"]) <= PROJECT["project"]["optional-dependencies"].keys()
    chart = read(INFRA / "helm" / "tunery" / "templates" / "services.yaml")
    in_train = re.findall(r'"image" "train"\) }}\n\s+args: \["-m", "services\.(\w+)"', chart)
    assert in_train == ["engine"]


def test_the_user_of_images_is_that_of_pods() -> None:
    pods = read(INFRA / "helm" / "tunery" / "templates" / "_pods.tpl")
    user, group = (re.findall(rf"runAs{name}: (\d+)", pods) for name in ("User", "Group"))
    for file in FILES:
        last = dict_of(stages(instructions(read(file)))[-1])
        assert last["USER"] == f"{user[0]}:{group[0]}"
        assert last["WORKDIR"] == "/var/lib/tunery"
        _, module = json.loads(last["CMD"])
        assert module in {f"services.{name}" for name in (*CONTROL_PLANE, AGENT)}


@pytest.mark.long  # so that `make check` leaves it out
@pytest.mark.soak
def test_the_steps_of_the_control_plane_make_an_environment_that_runs(tmp_path: Path) -> None:
    """The build stage as a script, in a folder instead of a container."""
    source, installed = tmp_path / "source", tmp_path / "opt" / "tunery"
    source.mkdir()
    environ = {**os.environ, "PATH": f"{tmp_path}/tool/bin:{os.environ['PATH']}"}
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "tool")], check=True)
    for step in stages(instructions(read(CONTROL)))[0]:
        if step.name == "COPY":
            for path in step.argument.split()[:-1]:
                copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
                copy(ROOT / path, source / path)
        elif step.name == "RUN":
            command = step.argument.replace("/opt/tunery", str(installed))
            subprocess.run(["sh", "-euc", command], cwd=source, env=environ, check=True)
    for service in (name for name in CONTROL_PLANE if name != "engine"):
        started = [str(installed / "bin" / "python"), "-m", f"services.{service}"]
        done = subprocess.run(started, cwd=tmp_path, env={}, capture_output=True, check=False)
        assert done.returncode == EXIT_BAD_SETTINGS, done.stderr.decode()
    listed = [str(installed / "bin" / "tunery"), "kafka", "prepare", "--help"]
    subprocess.run(listed, cwd=tmp_path, check=True, capture_output=True)

"""The guide names the Secrets, files and services that there are."""

import re
from typing import Final

from tests.infra.chart import daemonset_objects, example, example_objects
from tests.infra.containerfiles import read
from tests.infra.variables import CONTROL_PLANE, INFRA, ROOT, unknown_in
from tunery.local.stack import EXPORTER

PAGE: Final = read(ROOT / "docs" / "how-to" / "install.md")
SECRET: Final = re.compile(r"create secret generic (tunery-[\w-]+)")
LOOP: Final = re.compile(r"^for service in (.+); do$", re.MULTILINE)


def test_secrets_of_the_guide_are_those_of_the_chart() -> None:
    (services,) = (loop.split() for loop in LOOP.findall(PAGE))
    assert sorted(services) == sorted(name for name in CONTROL_PLANE if name != EXPORTER)
    created = {*SECRET.findall(PAGE), *(f"tunery-{name}" for name in services)} - {"tunery-"}
    text = str((*example_objects(), *daemonset_objects()))
    named = set(re.findall(r"'(?:secretName|secretRef)': (?:\{'name': )?'([\w-]+)'", text))
    assert created == named


def test_variables_and_files_of_the_guide_are_there() -> None:
    assert unknown_in(PAGE) == set()
    paths = set(re.findall(r"infra/[\w./*-]+", PAGE))
    assert [path for path in paths if not list(ROOT.glob(path.rstrip("/")))] == []
    assert example()["images"]["control"]["repository"] + ":0.1.0" in PAGE
    assert {f"{path.name}/" for path in INFRA.iterdir() if path.is_dir()} <= set(
        re.findall(r"(?:infra/)?(\w+/)", read(INFRA / "README.md") + PAGE)
    )

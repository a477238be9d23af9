"""Import contracts hold, and each is shown to fail on a planted import."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LINT: Final = str(Path(sys.executable).with_name("lint-imports"))
LINT_S_MAX: Final = 60
BROKEN: Final = re.compile(r"(.+) BROKEN(?: \(\d+ ignored imports?\))?")


def broken_contracts(tree: Path) -> dict[str, str]:
    """The contracts that a tree breaks, each with the imports that break it."""
    done = subprocess.run(
        [LINT, "--no-logo", "--no-cache"],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=LINT_S_MAX,
        check=False,
    )
    assert "Contracts:" in done.stdout, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    names = [broken[1] for line in lines if (broken := BROKEN.fullmatch(line))]
    _, _, details = done.stdout.partition("Broken contracts")
    chapters = re.split(r"^(.+)\n-+$", details, flags=re.MULTILINE)[1:]
    imports = dict(zip(chapters[::2], chapters[1::2], strict=True))
    return {name: imports[name] for name in names}


def test_the_repository_keeps_its_contracts() -> None:
    assert broken_contracts(ROOT) == {}


PLANTED: Final = {
    "Layers of the product": ("schemas/planted.py", "import tunery.runtime"),
    "No service imports another": ("services/billing/planted.py", "import services.ingest"),
    "Layers inside a service": (
        "services/billing/domain/planted.py",
        "import services.billing.app",
    ),
    "Effects reach adapters through ports alone": (
        "services/ingest/effect.py",
        "import services.ingest.adapters",
    ),
    "Subjects of the gateway": (
        "services/gateway/files/planted.py",
        "import services.gateway.jobs",
    ),
    "Domains, tables and projections of the gateway are pure": (
        "services/gateway/files/domain/bodies.py",
        "import fastapi",
    ),
    "Views know no HTTP": ("services/gateway/views/reading.py", "import starlette"),
    "The API reads views and fills none": (
        "services/gateway/files/planted.py",
        "import services.gateway.views.projections",
    ),
    "The event core is a library: no server, no driver, no stream of ours": (
        "tunery/runtime/planted.py",
        "import schemas.job",
    ),
    "The frame of records knows no stream": ("schemas/streams.py", "import schemas.topics"),
    "Drivers and settings know no product": ("tunery/platform/planted.py", "import tunery.local"),
    "The product never imports the simulator": ("tunery/planted.py", "import simulator"),
    "Tensors stay in tunery.ml": ("services/gateway/planted.py", "import torch"),
    "Only its own processes load tunery.ml": (
        "services/trainer/planted.py",
        "import tunery.ml",
    ),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Broken imports of each contract, in a copy of the sources with all planted imports."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in ("schemas", "services", "tunery", "simulator"):
        shutil.copytree(
            ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__", "*.part")
        )
    shutil.copy(ROOT / "pyproject.toml", tree)
    for name, line in PLANTED.values():
        with (tree / name).open("a", encoding="utf-8") as module:
            module.write(f"\n{line}\n")
    return broken_contracts(tree)


@pytest.mark.long
@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_import_breaks_its_contract(broken: dict[str, str], contract: str) -> None:
    name, line = PLANTED[contract]
    importer = name.removesuffix(".py").replace("/", ".")
    imported = line.removeprefix("import ")
    assert f" {importer} -> {imported} " in broken[contract]


def test_every_contract_has_its_proof() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = [
        line.split('"')[1]
        for line in text.splitlines()
        if line.startswith('name = "') and " " in line[8:]
    ]
    assert sorted(names) == sorted(PLANTED)

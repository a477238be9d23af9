"""Import contracts hold, and each is shown to fail on a planted import."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LINT: Final = str(Path(sys.executable).with_name("lint-imports"))
LINT_S_MAX: Final = 60


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in which violations are planted."""
    copy = tmp_path_factory.mktemp("tree")
    for folder in ("schemas", "services", "tunery", "simulator"):
        shutil.copytree(
            ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__", "*.part")
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def broken_contracts(tree: Path) -> list[str]:
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
    return [
        line.removesuffix(" BROKEN") for line in done.stdout.splitlines() if line.endswith("BROKEN")
    ]


def test_the_repository_keeps_its_contracts(tree: Path) -> None:
    assert broken_contracts(tree) == []


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
    "Pure modules of the gateway": ("services/gateway/files/projection.py", "import fastapi"),
    "The runtime stands on schemas alone": ("tunery/runtime/planted.py", "import tunery.local"),
    "The product never imports the simulator": ("tunery/planted.py", "import simulator"),
    "Tensors stay in tunery.ml": ("services/gateway/planted.py", "import torch"),
    "Only its own processes load tunery.ml": (
        "services/trainer/planted.py",
        "import tunery.ml",
    ),
}


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_import_breaks_its_contract(tree: Path, contract: str) -> None:
    name, line = PLANTED[contract]
    path = tree / name
    before = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{before or ''}\n{line}\n", encoding="utf-8")
    try:
        assert contract in broken_contracts(tree)
    finally:
        path.unlink()
        if before is not None:
            path.write_text(before, encoding="utf-8")


def test_every_contract_has_its_proof() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    names = [
        line.split('"')[1]
        for line in text.splitlines()
        if line.startswith('name = "') and " " in line[8:]
    ]
    assert sorted(names) == sorted(PLANTED)

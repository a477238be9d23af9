"""Fixtures of tests of `infra/`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.infra.variables import CLUSTER_AGENT, NODE
from tunery.cli.main import main


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Environment files of all services and of two nodes, as the command line writes them."""
    folder = tmp_path_factory.mktemp("etc")
    secret = folder / "secret.txt"
    secret.write_text("0123456789abcdef" * 4, encoding="ascii")
    words = ["kafka", "files", str(folder / "tunery"), "--secret", str(secret)]
    words += [f"--node={name}" for name in (NODE, CLUSTER_AGENT)]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder / "tunery"

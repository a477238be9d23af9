"""The repository as a tree of sources."""

from pathlib import Path

import pytest

from tests.repo.tree import Tree


@pytest.fixture(scope="session")
def repository() -> Tree:
    """Parsed once for all rules."""
    tree = Tree(Path(__file__).resolve().parents[2])
    tree.parse()
    return tree

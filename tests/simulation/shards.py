"""Seeds are played in shards, so that all workers of a test run help; sums are of all shards."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Shards:
    """`count` shards of `seeds` seeds each, the first of which is seed 1. name: of the scenario."""

    name: str
    count: int
    seeds: int

    def seeds_of(self, shard: int) -> range:
        return range(shard * self.seeds + 1, (shard + 1) * self.seeds + 1)

    def add(
        self, factory: pytest.TempPathFactory, shard: int, sums: Counter[str]
    ) -> Counter[str] | None:
        """Keep the sums of one shard. The shard that ends last gets the sums of all."""
        folder = shared_folder(factory)
        part = folder / f"{self.name}-{shard}.part"
        part.write_text(json.dumps(sums), encoding="ascii")
        part.replace(part.with_suffix(".json"))
        files = [folder / f"{self.name}-{number}.json" for number in range(self.count)]
        if not all(file.exists() for file in files):
            return None
        total = Counter[str]()
        for file in files:
            total.update(json.loads(file.read_text(encoding="ascii")))
        return total


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """A folder of this test run that all of its workers see."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

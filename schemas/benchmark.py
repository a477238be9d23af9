"""Benchmarks of the operator, as `model`, `job` and `pool` refer to them."""

from typing import Literal, TypeAlias

from schemas.envelope import Part, Sha256

BenchmarkKind: TypeAlias = Literal["choices", "shares", "numbers", "safety"]


class Benchmark(Part, omit_defaults=True):
    """A benchmark of the operator, which the gate asks besides its bundled questions."""

    name: str  # name in requests; the bytes under one name never change
    task: str  # name of the task that its files were imported as, for example "mmlu"
    kind: BenchmarkKind  # how an item is answered
    # hash, storage key and size of its file, see `tunery.benchmarks.task`
    sha256: Sha256
    blob: str
    bytes: int
    items: int  # number of its items
    shots: int = 0  # solved examples in the prompt of each item

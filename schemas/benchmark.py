"""Benchmarks that the gate asks beside its bundled questions. For `model`, `job` and `pool`."""

from typing import Literal, TypeAlias

from schemas.envelope import Part, Sha256

BenchmarkKind: TypeAlias = Literal["choices", "shares", "numbers", "safety"]


class Benchmark(Part, omit_defaults=True):
    """A benchmark of the operator, which the gate asks beside its bundled questions.

    name: in requests; the bytes under one name never change.
    task: as what its files were imported: "mmlu" for example.
    kind: how an item is answered.
    sha256, blob, bytes: its file, see `tunery.benchmarks.task`.
    items: how many it has. shots: examples before each of them.
    """

    name: str
    task: str
    kind: BenchmarkKind
    sha256: Sha256
    blob: str
    bytes: int
    items: int
    shots: int = 0

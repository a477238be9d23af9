"""What makes the result of a job, as a hash: equal for two jobs that would give the same. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from schemas.envelope import Sha256
from schemas.submission import JobSpec
from services.gateway.jobs.tables import JobRow

SEED_DRAWN: Final = 0
#: the first that an earlier job has decides which of several is named
OUTCOMES: Final = ("succeeded", None, "failed", "cancelled")


def configuration_of(
    spec: JobSpec,
    contents: Sequence[str],
    *,
    is_seed_drawn: bool,
    grader: Mapping[str, Any] | None = None,
    measures: Sequence[Any] = (),
) -> Sha256:
    """The hash of a job's configuration, without its id, its place and its price.

    spec: before its steps were divided to fit into the memory of a node.
    contents: hashes of the bytes of its files.
    is_seed_drawn: nobody asked for its seed, so another one is as good.
    grader: what says the worth of its answers; None: its method grades none.
    measures: of answers to its validation rows; none: they are not measured.
    """
    hyper = replace(spec.hyper, seed=SEED_DRAWN) if is_seed_drawn else spec.hyper
    parts = {
        "base": spec.base.sha256,
        "contents": list(contents),
        "hyper": hyper,
        "is_seed_drawn": is_seed_drawn,
        "length_policy": spec.length_policy,
        "validation_fraction_ppm": spec.validation_fraction_ppm,
        "drop_max_ppm": spec.drop_max_ppm,
        "slots": spec.slots,
        "device": spec.device,
    }
    if spec.start is not None:
        parts["start"] = spec.start.sha256
    if spec.mixture:
        parts["mixture"] = [(file.sha256, file.weight_ppm) for file in spec.mixture]
    if grader is not None:
        parts["grader"] = grader
    if spec.benchmarks:
        asked = [benchmark.sha256 for benchmark in spec.benchmarks]
        parts["benchmarks"] = [asked, spec.benchmark_items]
    if measures:
        parts["measures"] = [list(measures), spec.measured_rows]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def earlier_job(rows: Sequence[JobRow]) -> JobRow | None:
    """Of jobs with the same configuration, newest first, the one that tells most."""
    return min(rows, key=lambda row: OUTCOMES.index(row.outcome), default=None)

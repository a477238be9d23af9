"""Hash of all that determines the result of a job: equal for two jobs with the same result.

And the earlier job that has the same one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec
from msgspec.structs import replace

from schemas.envelope import Sha256
from schemas.job import Phase
from schemas.submission import JobSpec
from services.gateway.views.ports import Views, Where
from services.gateway.views.tables.jobs import JOBS, JobRow

SEED_DRAWN: Final = 0
UNDER_WAY: Final = tuple(phase for phase in get_args(Phase) if phase != "done")


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
    is_seed_drawn: the request has no seed, so a job with another seed is a duplicate.
    grader: grader of its answers; None: its method grades none.
    measures: measures of answers to its validation rows; none: they are not measured.
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
    if spec.reasoning != "keep":  # there was no choice once
        parts["reasoning"] = spec.reasoning
    if spec.chat_sha256 is not None:
        parts["chat"] = spec.chat_sha256
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


async def earlier_job(views: Views, tenant: str, configuration: str) -> JobRow | None:
    """Return the most informative earlier job with this configuration: succeeded, else active, else
    newest. Only one row is read at a time, since a tenant may have thousands of such jobs.
    """
    where = {"tenant": tenant, "configuration": configuration}
    newest = await _newest(views, where)
    if newest is None or newest.outcome == "succeeded":
        return newest
    if succeeded := await _newest(views, {**where, "outcome": "succeeded"}):
        return succeeded
    if newest.phase in UNDER_WAY:
        return newest
    return await _newest(views, {**where, "phase": UNDER_WAY}) or newest


async def _newest(views: Views, where: Where) -> JobRow | None:
    rows = await views.page(JOBS, where, limit=1)
    return rows[0] if rows else None

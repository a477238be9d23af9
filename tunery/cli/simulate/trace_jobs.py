"""A job of a recorded or generated workload trace."""

from dataclasses import dataclass

from schemas.units import Ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    """A job of a trace.

    job_id: made of a fixed width, so that it sorts by its place in the file.
    submitted_at: since the beginning of the trace.
    duration_ms: how long it runs undisturbed.
    estimate_ms: how long it should take (p50).
    upper_ms: how long it should take at most (p90); 0: the trace does not say.
    slots: how many it needs at the same time.
    tenant: who submitted it.
    lane: index in `LANES`.
    work: what it does and on what: "train base on cuda"; empty: the trace does not say.
    succeeded: it ran to its end, so that its duration is that of its work.
    """

    job_id: str
    submitted_at: Ms
    duration_ms: Ms
    estimate_ms: Ms
    slots: int
    tenant: str
    lane: int
    upper_ms: Ms = 0
    work: str = ""
    succeeded: bool = True

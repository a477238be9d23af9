"""A job of a recorded or generated workload trace."""

from dataclasses import dataclass

from schemas.units import Ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceJob:
    job_id: str  # made of a fixed width, so that it sorts by its place in the file
    submitted_at: Ms  # time since the beginning of the trace
    duration_ms: Ms  # how long it runs undisturbed
    estimate_ms: Ms  # how long it should take (p50)
    slots: int  # how many it needs at the same time
    tenant: str  # who submitted it
    lane: int  # index in `LANES`
    upper_ms: Ms = 0  # how long it should take at most (p90); 0: the trace does not say
    work: str = ""  # what it does and on what: "train base on cuda"; empty: the trace does not say
    succeeded: bool = True  # it ran to its end, so that its duration is that of its work

"""Comparison of nodes of one type at the same work: which one is slower than the others. Pure."""

from statistics import median
from typing import Final

from msgspec import Struct

from schemas.anomaly import Anomaly
from schemas.units import DAY_MS, PPM, Ms
from services.watcher.domain.watch import FIGURE_MAX

#: share of the median of the others below which a node is slow. GPUs of one model differ by 8 % on
#: average and by up to 22 % in five clusters (Sinha et al., "Not All GPUs Are Created Equal",
#: SC22); this is beyond all of them.
DRIFT_SHARE: Final = 0.7
PEERS_MIN: Final = 3  # of other nodes: of two that differ, nobody knows which one is at fault
NODES_MAX: Final = 64
KEPT_MS: Final[Ms] = DAY_MS  # a node may be repaired meanwhile


class NodeSpeed(Struct, frozen=True):
    """The median speed of a node in a window of an attempt."""

    tenant: str
    job_id: str
    attempt: int
    node_id: str
    window: Ms  # when the window begins
    at: Ms  # when it was over. Both by the time of the broker.
    tokens_per_s: float


class LastSpeed(Struct, frozen=True, array_like=True):
    """The newest speed of a node."""

    job_id: str
    attempt: int
    at: Ms
    tokens_per_s: float
    is_slow: bool = False  # it was reported as slow in this attempt of this job


def compare(
    peers: dict[str, LastSpeed], speed: NodeSpeed
) -> tuple[dict[str, LastSpeed], Anomaly | None]:
    """The newest speeds by node after one more, and its anomaly if it is one for the first time."""
    recent = {
        name: last
        for name, last in peers.items()
        if last.at > speed.at - KEPT_MS and name != speed.node_id
    }
    others = [last.tokens_per_s for last in recent.values()]
    usual = median(others) if len(others) >= PEERS_MIN else 0.0
    is_slow = speed.tokens_per_s < DRIFT_SHARE * usual
    before = peers.get(speed.node_id)
    newest = sorted(recent.items(), key=lambda item: (item[1].at, item[0]))[1 - NODES_MAX :]
    after = {
        **dict(newest),
        speed.node_id: LastSpeed(
            speed.job_id, speed.attempt, speed.at, speed.tokens_per_s, is_slow
        ),
    }
    if not is_slow or _is_reported(before, speed):
        return after, None
    return after, Anomaly(
        kind="slow_node",
        attempt=speed.attempt,
        window=speed.window,
        measured_ppm=round(PPM * min(speed.tokens_per_s, FIGURE_MAX)),
        usual_ppm=round(PPM * min(usual, FIGURE_MAX)),
    )


def _is_reported(before: LastSpeed | None, speed: NodeSpeed) -> bool:
    if before is None or not before.is_slow:
        return False
    return (before.job_id, before.attempt) == (speed.job_id, speed.attempt)

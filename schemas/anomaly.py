"""Messages of `job` about anomalies of running attempts, which watcher finds in telemetry."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.units import Ms

AnomalyKind: TypeAlias = Literal[
    "loss_spike", "throughput_drop", "stuck", "gpu_idle", "slow_node", "nothing_learnt"
]


class Anomaly(Part):
    """Unusual behaviour of an attempt in a window of time."""

    # type of anomaly, which determines the measured quantity: the loss, tokens a second, seconds
    # since the last message, the share of time in which the devices compute, or the reward or loss
    # of a training that teaches nothing
    kind: AnomalyKind
    attempt: int  # number of the job's attempt
    window: Ms  # when the window begins, by the time of the broker
    # measured_ppm, usual_ppm: measured and usual value, in millionths. Usual is the value before;
    # for silence the longest one; for a slow node the value of others of its type at the same work;
    # where nothing is learnt the loss of the first steps, and 0 where rewards were all equal.
    measured_ppm: int
    usual_ppm: int

    @property
    def key(self) -> str:
        """Key that identifies the anomaly, so that repeated reports are recorded once."""
        return f"{self.attempt}/{self.kind}/{self.window}"


class RecordAnomaly(Message):
    """Something is unusual about the open attempt. It may be sent again."""

    job_id: str
    anomaly: Anomaly

    @property
    def attempt(self) -> int:
        """Number of the attempt that the anomaly concerns."""
        return self.anomaly.attempt


class AnomalyRecorded(Message):
    """Something was unusual about an attempt while it ran."""

    job_id: str
    anomaly: Anomaly

"""Of `job`: anomalies of running attempts, which watcher finds in telemetry."""

from typing import Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.units import Ms

AnomalyKind: TypeAlias = Literal["loss_spike", "throughput_drop", "stuck", "gpu_idle", "slow_node"]


class Anomaly(Part):
    """What is unusual about an attempt in a window of time.

    kind: what it is; it also says what is measured: the loss, tokens a second, seconds since the
      last message, or the share of time in which the devices compute.
    attempt: of the job.
    window: when the window begins, by the time of the broker.
    measured_ppm, usual_ppm: in millionths; what was usual before, for silence the longest one, and
      for a slow node what others of its type do at the same work.
    """

    kind: AnomalyKind
    attempt: int
    window: Ms
    measured_ppm: int
    usual_ppm: int

    @property
    def key(self) -> str:
        """What makes it the same anomaly: one that is reported again is recorded once."""
        return f"{self.attempt}/{self.kind}/{self.window}"


class RecordAnomaly(Message):
    """Something is unusual about the open attempt. It may be sent again.

    job_id: the job.
    anomaly: what.
    """

    job_id: str
    anomaly: Anomaly

    @property
    def attempt(self) -> int:
        """Which attempt it is about."""
        return self.anomaly.attempt


class AnomalyRecorded(Message):
    """Something was unusual about an attempt while it ran.

    job_id: the job.
    anomaly: what.
    """

    job_id: str
    anomaly: Anomaly

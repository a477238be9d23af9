"""What an anomaly is called in the event list of its job. Pure."""

from typing import assert_never

from schemas.anomaly import Anomaly
from schemas.units import PPM


def anomaly_words(anomaly: Anomaly) -> str:
    """One sentence with what was measured and what is usual."""
    measured, usual = anomaly.measured_ppm / PPM, anomaly.usual_ppm / PPM
    match anomaly.kind:
        case "loss_spike":
            return f"The loss is {measured:.3g}, far above the usual {usual:.3g}"
        case "throughput_drop":
            return f"Training has slowed to {measured:,.0f} tokens a second from {usual:,.0f}"
        case "stuck":
            return (
                f"Nothing was heard of the attempt for {measured:,.0f} seconds; "
                f"its longest pause before was {usual:,.0f} seconds"
            )
        case "gpu_idle":
            return f"Its devices compute in only {measured:.0%} of the time"
        case "slow_node":
            return (
                f"The node trains at {measured:,.0f} tokens a second; "
                f"others of its type do {usual:,.0f} at the same work"
            )
        case "nothing_learnt" if not usual:
            return f"Nothing is learnt: the rewards of all answers are equal ({measured:.2f})"
        case "nothing_learnt":
            return f"Nothing is learnt: the loss is {measured:.3g}, and was {usual:.3g} at first"
        case _:
            assert_never(anomaly.kind)

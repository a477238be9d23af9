from typing import get_args

import pytest

from schemas.anomaly import Anomaly, AnomalyKind
from services.gateway.views.projections.messages import anomaly_words

WORDS: dict[AnomalyKind, str] = {
    "loss_spike": "The loss is 0.04, far above the usual 1.5",
    "throughput_drop": "Training has slowed to 0 tokens a second from 2",
    "stuck": (
        "Nothing was heard of the attempt for 0 seconds; its longest pause before was 2 seconds"
    ),
    "slow_node": ("The node trains at 0 tokens a second; others of its type do 2 at the same work"),
    "nothing_learnt": "Nothing is learnt: the loss is 0.04, and was 1.5 at first",
    "gpu_idle": "Its devices compute in only 4% of the time",
}


@pytest.mark.parametrize("kind", get_args(AnomalyKind))
def test_each_kind_has_its_figures(kind: AnomalyKind) -> None:
    anomaly = Anomaly(kind=kind, attempt=1, window=0, measured_ppm=40_000, usual_ppm=1_500_000)
    assert anomaly_words(anomaly) == WORDS[kind]

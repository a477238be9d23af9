"""Measures of a reward model."""

import io
import json
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.unit.tunery.ml.test_rewards import ruled
from tests.unit.tunery.ml.trainings import go, of
from tunery.ml.events import EventWriter
from tunery.ml.reward_scoring import NO_REWARD_LOSS
from tunery.ml.score import score_file
from tunery.ml.stop import StopRequest
from tunery.work.codec import decode_scores, encode_spec
from tunery.work.exits import ExitCode
from tunery.work.scores import PAIRS
from tunery.work.spec import ScoreSpec, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def test_method_reward_each_pair_that_validates_is_an_item(
    reward_spec: TrainSpec, make_shard: Callable[..., Path], tmp_path: Path
) -> None:
    valid = str(make_shard(ruled(4, 50), "valid-ruled", pairs=True))
    hyper = msgspec.structs.replace(reward_spec.hyper, n_epochs=4, learning_rate=3e-3)
    train = msgspec.structs.replace(
        reward_spec,
        hyper=hyper,
        train_shards=(str(make_shard(ruled(8, 0), "ruled", pairs=True)),),
        valid_shards=(valid,),
    )
    _, trained = go(train)
    spec = ScoreSpec(
        base_dir=train.base_dir,
        base_sha256=train.base_sha256,
        adapter_dir=of(trained, "finished")[0]["adapter_dir"],
        out=str(tmp_path / "scores.json"),
        valid_shards=(valid,),
        precision="fp32",
        threads=1,
        method="reward",
    )
    path, stream = tmp_path / "score.json", io.BytesIO()
    path.write_bytes(encode_spec(spec))
    code = score_file(path, EventWriter(stream, time.monotonic()), StopRequest())
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert code == ExitCode.FINISHED
    assert events[-1]["type"] == "scoring_finished"
    scores = decode_scores(Path(spec.out).read_bytes())
    assert len({item.id for item in scores.items}) == len(scores.items) == 8
    assert {item.category for item in scores.items} == {PAIRS}
    assert all(item.adapter for item in scores.items), "the rule was learnt"
    assert scores.holdout.base_loss == NO_REWARD_LOSS
    assert scores.holdout.adapter_loss is not None
    assert scores.holdout.adapter_loss < NO_REWARD_LOSS
    assert (scores.answers, scores.not_finite, scores.holdout.generated) == ((), (), 0)

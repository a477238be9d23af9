"""A loop of a client's own has the losses of a job on the same batches, and of TRL."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tests.bases import Base
from tests.unit.tunery.ml.test_session import STEP, Loop, floats, ints
from tests.unit.tunery.ml.trainings import PLAIN, go, of
from tests.unit.tunery.ml.trl_trainers import losses_of, sft_trainer
from tunery.ml.order import row_order
from tunery.ml.packed import IGNORED, read_rows
from tunery.work.session import Body, LossRow, PassAnswer, PassBody
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


def mean_loss(tokens: list[int], labels: list[int]) -> Body:
    """A pass over one row, whose loss is the mean of its labels."""
    learnt = [float(label != IGNORED) for label in labels[1:]]
    row = LossRow(
        tokens=ints(*tokens[:-1]),
        targets=ints(*tokens[1:]),
        weights=floats(*[each / sum(learnt) for each in learnt]),
    )
    return PassBody(loss="cross_entropy", rows=(row,))


def test_tinker_a_loop_has_the_first_20_losses_of_a_job_and_of_trl(
    tiny: Base,
    spec: TrainSpec,
    tmp_path: Path,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> None:
    shard = str(make_shard(documents(10, 1), "single"))
    spec = msgspec.structs.replace(
        spec, hyper=PLAIN, train_shards=(shard,), valid_shards=(), checkpoint_every_steps=100
    )
    _, events = go(spec)
    job = [event["loss"] for event in of(events, "step")]
    packed = read_rows(spec.train_shards, vocabulary=100_000)
    rows = [packed.batch([at]) for at in range(10)]
    data = [{key: row[key][0].tolist() for key in ("input_ids", "labels")} for row in rows]

    class SameSettings(Loop):
        @property
        def training(self) -> TrainSpec:
            return msgspec.structs.replace(super().training, hyper=PLAIN)

    step = msgspec.structs.replace(
        STEP,
        learning_rate=PLAIN.learning_rate,
        beta2=0.999,
        eps=1e-8,
        grad_clip_norm=PLAIN.grad_norm_max,
    )
    commands: list[tuple[str, Body]] = []
    for epoch in range(PLAIN.n_epochs):
        for at in row_order(PLAIN.seed, epoch, len(data)):
            whole = mean_loss(data[at]["input_ids"], data[at]["labels"])
            commands += [("forward_backward", whole), ("optim_step", step)]
    answers = SameSettings(tiny, tmp_path / "loop").run(*commands)
    loop = [each.loss for each in answers if isinstance(each, PassAnswer)]
    assert len(loop) == 20
    assert loop == pytest.approx(job, abs=1e-5)
    assert loop == pytest.approx(losses_of(sft_trainer(spec, data, tmp_path / "trl")), abs=1e-4)
    assert loop[-1] < loop[0]

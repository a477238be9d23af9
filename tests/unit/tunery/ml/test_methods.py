from typing import Any

import msgspec
import pytest

from tests.unit.tunery.ml.trainings import go
from tunery.work.exits import WorkError
from tunery.work.spec import TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]


@pytest.mark.parametrize(("method", "shards"), [("supervised", "pairs"), ("dpo", "answers")])
def test_method_rows_of_another_one_are_refused(
    spec: TrainSpec, pairs_spec: TrainSpec, method: Any, shards: str
) -> None:
    hyper = msgspec.structs.replace(pairs_spec.hyper, method=method)
    rows = (pairs_spec if shards == "pairs" else spec).train_shards
    with pytest.raises(WorkError, match=f"{method!r} learns from"):
        go(msgspec.structs.replace(spec, hyper=hyper, train_shards=rows))


def test_method_that_is_not_built_is_named(spec: TrainSpec) -> None:
    unknown: Any = "ppo"
    hyper = msgspec.structs.replace(spec.hyper, method=unknown)
    with pytest.raises(WorkError, match="method 'ppo' is not built"):
        go(msgspec.structs.replace(spec, hyper=hyper))

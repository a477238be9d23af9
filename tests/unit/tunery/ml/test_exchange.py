"""What ranks tell each other through memory: here they are threads of one process."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tunery.ml import exchange
from tunery.ml.exchange import Exchange, RankLost
from tunery.ranks.joining import joined

COUNT, ROUNDS = 4, 200


def exchanges(count: int) -> list[Exchange]:
    with joined(count, part_bytes=64) as descriptors:
        return [Exchange(n, count, tuple(map(os.dup, own))) for n, own in enumerate(descriptors)]


def test_ranks_read_what_each_has_written_in_each_round() -> None:
    """However they are scheduled: who is ahead does not write over what others have to read."""

    def be_rank(rank: Exchange) -> None:
        for at in range(ROUNDS):
            own = torch.tensor([at, rank.number], dtype=torch.int64)
            gathered = [part.tolist() for part in rank.gather(own)]
            assert gathered == [[at, number] for number in range(COUNT)]
        assert rank.gather(torch.tensor([[1.5]], dtype=torch.bfloat16))[3].shape == (1, 1)
        rank.close()

    with ThreadPoolExecutor(COUNT) as threads:
        list(threads.map(be_rank, exchanges(COUNT)))


def test_ranks_that_are_late_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "SAID_AFTER_S", 0.05)
    ranks = exchanges(3)
    late: list[int] = []
    ranks[0].on_wait = late.append

    def be_rank(rank: Exchange) -> None:
        if rank.number == 2:
            time.sleep(0.4)
        rank.gather(torch.zeros(1))
        rank.close()

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(be_rank, ranks))
    assert late == [2]
    assert ranks[2].waited_s < 0.3 < min(rank.waited_s for rank in ranks[:2])


def test_ranks_that_are_gone_are_noticed_at_once() -> None:
    first, second = exchanges(2)
    second.close()
    with pytest.raises(RankLost):
        first.gather(torch.zeros(1))
    first.close()

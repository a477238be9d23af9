"""Ranks of two machines tell each other what they would tell each other on one."""

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.unit.tunery.ranks.carriers import Pair
from tunery.ml.exchange import Exchange, RankLost
from tunery.ranks.carrying import CarriedWrong, Carrier, RankGone, RankPart

COUNT, FIRST, ROUNDS, PART_BYTES = 5, 2, 50, 64


async def exchanges(pair: Pair) -> list[Exchange]:
    with pair.joined(COUNT, PART_BYTES) as every:
        ranks = [Exchange(n, COUNT, tuple(map(os.dup, own))) for n, own in enumerate(every)]
    await pair.begin()
    return ranks


async def test_ranks_of_two_machines_read_what_each_has_written_in_each_round() -> None:
    def be_rank(rank: Exchange) -> None:
        for at in range(ROUNDS):
            size = 1 + at % 4  # parts of a round are as large as they have to be
            gathered = rank.gather(torch.full((size,), 100 * at + rank.number))
            assert [part.tolist() for part in gathered] == [
                [100 * at + number] * size for number in range(COUNT)
            ]
        rank.close()

    pair = await run_to_end(be_rank)
    first, second = pair.sent
    assert sum(isinstance(each, RankPart) for each in first) == ROUNDS * FIRST, "once each"
    assert next(each for each in second if isinstance(each, RankPart)).round == 0


async def test_of_what_a_rank_has_written_another_machine_gets_what_its_ranks_read() -> None:
    """Ranks of their own machine have all of it in their memory."""
    reads = [slice(3 * number, 3 * number + 3) for number in range(COUNT)]

    def be_rank(rank: Exchange) -> None:
        for _ in range(ROUNDS):
            rank.own_part()[:15] = torch.arange(15) + 16 * rank.number
            parts = rank.meet([15] * COUNT, reads)
            assert [part[reads[rank.number]].tolist() for part in parts] == [
                [16 * number + 3 * rank.number + value for value in range(3)]
                for number in range(COUNT)
            ]
            unread = rank.meet(range(COUNT), [slice(0, 0)] * COUNT)
            assert [len(part) for part in unread] == list(range(COUNT))
        rank.close()

    pair = await run_to_end(be_rank)
    sent = [
        {(len(part.content), part.begin) for part in each if isinstance(part, RankPart)}
        for each in pair.sent
    ]
    assert sent == [{(9, 6), (0, 0)}, {(6, 0), (0, 0)}]


async def run_to_end(be_rank: Callable[[Exchange], None]) -> Pair:
    """Two machines whose ranks have ended, each in a thread of its own."""
    pair = Pair(COUNT, FIRST)
    loop, ranks = asyncio.get_running_loop(), await exchanges(pair)
    with ThreadPoolExecutor(COUNT) as threads:
        async with asyncio.timeout(30):
            await asyncio.gather(*(loop.run_in_executor(threads, be_rank, each) for each in ranks))
    await pair.close()
    return pair


async def test_a_rank_that_ends_is_noticed_on_the_other_machine() -> None:
    def be_rank(rank: Exchange) -> None:
        if rank.number == 4:
            rank.close()
            return
        with pytest.raises(RankLost):
            rank.gather(torch.zeros(1))
        rank.close()

    pair = await run_to_end(be_rank)
    assert RankGone(4) in pair.sent[1]


async def test_what_no_rank_of_another_machine_can_have_told_is_refused() -> None:
    async def send(_: object) -> None:
        raise AssertionError("nothing was told here")

    carrier = Carrier(3, range(2), send)
    with pytest.raises(CarriedWrong, match="rank 1 is not of another machine"):
        await carrier.deliver(RankPart(1, 0, b""))
    for at in range(2):
        await carrier.deliver(RankPart(2, at, b""))
    with pytest.raises(CarriedWrong, match="before the others have begun"):
        await carrier.deliver(RankPart(2, 2, b""))


@pytest.mark.parametrize(
    "part",
    [
        RankPart(4, 1, b""),
        RankPart(4, 0, bytes(PART_BYTES + 1), 0, PART_BYTES + 1),
        RankPart(4, 0, bytes(8), PART_BYTES - 7, PART_BYTES),
        RankPart(4, 0, bytes(8), -8, PART_BYTES),
        RankPart(4, 0, bytes(8), 0, 7),
    ],
)
async def test_a_part_of_another_round_or_one_that_is_too_large_is_refused(part: RankPart) -> None:
    pair = Pair(COUNT, FIRST)
    ranks = await exchanges(pair)
    with pytest.raises(CarriedWrong, match="rank 4 told something in round"):
        await pair.carriers[0].deliver(part)
    for rank in ranks:
        rank.close()
    await pair.close()

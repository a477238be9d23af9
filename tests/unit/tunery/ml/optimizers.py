"""Weights and steps of an optimizer, without a model."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch.nn import Parameter

from tunery.ml.adamw import AdapterAdamW
from tunery.ml.exchange import Exchange
from tunery.ml.ranks import Ranks
from tunery.ranks.joining import joined

Result = TypeVar("Result")


def weights(dtype: torch.dtype) -> dict[str, Parameter]:
    return {
        "b": Parameter(torch.full((3,), 1.0, dtype=dtype)),
        "a": Parameter(torch.full((2, 2), -1.0, dtype=dtype)),
    }


def steps(optimizer: AdapterAdamW, count: int) -> None:
    for _ in range(count):
        for weight in optimizer.live.values():
            weight.grad = weight.detach().clone()
        optimizer.step()


def with_ranks(count: int, be_rank: Callable[[Ranks], Result], part_bytes: int) -> list[Result]:
    """What each rank returns; here they are threads. One that fails ends the others."""

    def be_thread(number: int) -> Result:
        exchange = Exchange(number, count, own[number])
        try:
            return be_rank(Ranks(exchange))
        finally:
            exchange.close()

    with joined(count, part_bytes) as descriptors:
        own = [tuple(map(os.dup, each)) for each in descriptors]
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(be_thread, range(count)))

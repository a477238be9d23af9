"""Threads that work in turn: their order, and what of the process each of them keeps."""

import random
import threading
from contextlib import suppress

import numpy as np
import pytest
import torch

from tunery.ml.turns import ProcessState, Turn, TurnQueue

pytestmark = pytest.mark.train
Draws = list[float]


def draw() -> Draws:
    return [random.random(), float(np.random.rand()), float(torch.rand(()))]


def work(turn: Turn, seed: int, times: int, log: list[tuple[int, Draws]]) -> None:
    """In a thread: seed all generators, and draw from them once a turn."""
    with turn:
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        for _ in range(times):
            turn.pass_on()
            log.append((seed, draw()))


def run(*works: tuple[int, int]) -> list[tuple[int, Draws]]:
    queue, log = TurnQueue(), list[tuple[int, Draws]]()
    threads = [
        threading.Thread(target=work, args=(queue.join(), seed, times, log))
        for seed, times in works
    ]
    for thread in threads:
        thread.start()
    queue.go_on()
    for thread in threads:
        thread.join(timeout=300)
        assert not thread.is_alive()
    return log


def test_each_works_in_turn_and_draws_what_it_draws_alone() -> None:
    before = ProcessState.take()
    together = run((1, 3), (2, 5), (3, 4))
    assert [seed for seed, _ in together] == [1, 2, 3, 1, 2, 3, 1, 2, 3, 2, 3, 2]
    for seed, times in ((1, 3), (2, 5), (3, 4)):
        own = [drawn for number, drawn in together if number == seed]
        before.restore()
        assert own == [drawn for _, drawn in run((seed, times))]


def test_one_that_fails_lets_the_next_work() -> None:
    queue, log = TurnQueue(), list[tuple[int, Draws]]()

    def fail(turn: Turn) -> None:
        with suppress(ValueError), turn:
            turn.pass_on()
            raise ValueError

    threads = [
        threading.Thread(target=fail, args=(queue.join(),)),
        threading.Thread(target=work, args=(queue.join(), 2, 2, log)),
    ]
    for thread in threads:
        thread.start()
    queue.go_on()
    for thread in threads:
        thread.join(timeout=300)
    assert [seed for seed, _ in log] == [2, 2]

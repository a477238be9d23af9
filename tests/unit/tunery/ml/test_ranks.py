"""Exchange between ranks. Trainings on several ranks: test_engines.py."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tunery.ml.ranks import ALONE, RankLost, Ranks, is_lost
from tunery.ranks.launching import RENDEZVOUS
from tunery.work.exits import WorkError

pytestmark = pytest.mark.train


def test_a_single_process_takes_all_micro_batches() -> None:
    assert all(ALONE.takes(number) for number in range(5))
    assert ALONE.add([1.5, 2.0]) == [1.5, 2.0]
    assert (ALONE.any(is_so=True), ALONE.of_first(4.0), ALONE.environment()) == (True, 4.0, {})
    gradient = torch.ones(2)
    ALONE.sum_gradients([gradient])
    assert gradient.tolist() == [1.0, 1.0]


def test_a_spec_for_ranks_without_a_launcher_says_how_to_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    with pytest.raises(WorkError) as refused:
        Ranks.join(torch.device("cpu"), 2)
    assert "torchrun --nproc-per-node 2" in refused.value.advice


def test_ranks_that_do_not_meet_have_lost_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendezvous that is none."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(RENDEZVOUS, "nowhere://")
    with pytest.raises(RankLost, match="did not meet"):
        Ranks.join(torch.device("cpu"), 2)


def test_review2_d1_a_taken_port_is_named_by_the_rank_that_would_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The error named lost ranks, which were all there."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        meeting = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv(RENDEZVOUS, meeting)
        with pytest.raises(WorkError) as refused:
            Ranks.join(torch.device("cpu"), 2)
    assert refused.value.cause == "platform"
    assert refused.value.message == f"rank 0 cannot listen at {meeting}: the port is taken"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RankLost("gone"), True),
        (RuntimeError("[pair.cc:561] Connection closed by peer [127.0.0.1]"), True),
        (RuntimeError("Timed out waiting 600000ms for recv operation"), True),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError("connection closed"), False),
    ],
)
def test_errors_that_say_that_another_rank_is_gone(error: Exception, expected: bool) -> None:
    assert is_lost(error) is expected


WAITS = """
import os, sys, threading, time
import torch
import torch.distributed as dist
from tunery.ml.ranks import Ranks, pending_collective

ranks = Ranks.join(torch.device("cpu"), 2)
if ranks.is_first:
    threading.Thread(target=dist.all_reduce, args=(torch.ones(7),), daemon=True).start()
    for _ in range(600):
        if waits := pending_collective():
            break
        time.sleep(0.1)
    print(waits, flush=True)
    os._exit(0)
print(repr(pending_collective()), flush=True)
sys.stdin.read()
"""


def test_review2_d1_the_collective_that_a_rank_waits_in_is_known(tmp_path: Path) -> None:
    """The collective is read from torch's flight recorder by private names, which may change."""
    ranks = []
    for number in range(2):
        environment = os.environ | {
            "RANK": str(number),
            "WORLD_SIZE": "2",
            RENDEZVOUS: f"file://{tmp_path}/rendezvous",
            "GLOO_SOCKET_IFNAME": "lo",
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, "-c", WAITS],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    first, other = ranks
    said, _ = first.communicate()
    other_said, _ = other.communicate()
    assert said.startswith("gloo:all_reduce [7], number ")
    assert other_said == "''\n"

"""Heartbeats of a rank."""

import io
import json
import time

import pytest

from tunery.ml import beats as module
from tunery.ml.beats import Beats
from tunery.ml.events import EventWriter


def test_a_heartbeat_says_where_the_rank_is_and_whether_it_has_moved() -> None:
    stream = io.BytesIO()
    beats = Beats(EventWriter(stream, time.monotonic()), 3, every_s=0.01)
    beats.at(7, "computing", 2)
    while b'"step":7' not in stream.getvalue():
        time.sleep(0.01)
    beats.close()
    assert json.loads(stream.getvalue().splitlines()[0])["rank"] == 3
    last = json.loads(stream.getvalue().splitlines()[-1])
    assert (last["rank"], last["step"], last["phase"], last["micro_batch"]) == (
        3,
        7,
        "computing",
        2,
    )
    assert last["moved"] == 1


def test_a_rank_beats_where_its_collective_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> str:
        raise TypeError("another version of torch")

    monkeypatch.setattr(module, "pending_collective", fails)
    stream = io.BytesIO()
    beats = Beats(EventWriter(stream, time.monotonic()), 3, every_s=0.01)
    while stream.getvalue().count(b'"beat"') <= 2:
        time.sleep(0.01)
    beats.close()
    assert json.loads(stream.getvalue().splitlines()[0])["rank"] == 3

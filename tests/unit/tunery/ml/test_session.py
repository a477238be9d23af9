"""A session's process: what its commands do, and that they do the same to the byte once more."""

import io
import itertools
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.bases import Base
from tests.unit.tunery.ml.trainings import HYPER
from tunery.ml import session as session_module
from tunery.ml.events import EventWriter
from tunery.ml.stop import StopRequest
from tunery.ml.train import train
from tunery.work.codec import decode_event, encode_spec
from tunery.work.events import (
    AnyWorkEvent,
    Checkpointed,
    CommandDone,
    Finished,
    SessionWaits,
    Started,
)
from tunery.work.exits import ExitCode, WorkError
from tunery.work.session import (
    END,
    Answer,
    Body,
    FailedAnswer,
    HandedCommand,
    LoadBody,
    LossRow,
    PassAnswer,
    PassBody,
    SampleAnswer,
    SampleBody,
    SaveBody,
    SessionSpec,
    StepBody,
    decode_answer,
    encode_body,
    hand_over,
)
from tunery.work.spec import ResumeCandidate, TrainSpec

pytestmark = [
    pytest.mark.train,
    pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning"),
]
STEP = StepBody(
    learning_rate=1e-2, beta1=0.9, beta2=0.95, eps=1e-12, weight_decay=0.0, grad_clip_norm=0.0
)
CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}


def ints(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little", signed=True) for value in values)


def floats(*values: float) -> bytes:
    import numpy as np

    return np.array(values, np.float32).tobytes()


def read(values: bytes) -> list[float]:
    import numpy as np

    return [float(value) for value in np.frombuffer(values, np.float32)]


def a_row(number: int, length: int = 6) -> LossRow:
    tokens = [100 + (number * 31 + at * 7) % 900 for at in range(length + 1)]
    return LossRow(
        tokens=ints(*tokens[:-1]), targets=ints(*tokens[1:]), weights=floats(*[1.0] * length)
    )


def a_pass(*numbers: int) -> PassBody:
    return PassBody(loss="cross_entropy", rows=tuple(map(a_row, numbers)))


@dataclass
class Loop:
    """A session in this process: its commands are handed over before it begins."""

    base: Base
    folder: Path
    resume: tuple[ResumeCandidate, ...] = ()
    every: int = 100
    events: list[AnyWorkEvent] = field(default_factory=list)

    def run(
        self,
        *commands: tuple[str, Body],
        begin: int = 1,
        weights: str = "",
        stored: int = 0,
        ends: bool = True,
    ) -> list[Answer]:
        """stored: answers whose files each command says are needed no more. ends: else somebody
        else has to say so"""
        incoming = self.incoming
        incoming.mkdir(parents=True)
        for number, (kind, body) in enumerate(commands, 1):
            handed = HandedCommand(
                name=str(begin + number - 1),
                seq=begin + number - 1,
                kind=msgspec.convert(kind, Any),
                body=encode_body(body),
                tokens=6,
                weights_dir=weights if kind in ("load_state", "sample") else "",
                stored=stored,
            )
            hand_over(incoming, number, encode_body(handed))
        if ends:
            hand_over(incoming, len(commands) + 1, END)
        spec = SessionSpec(training=self.training, commands_dir=str(incoming))
        path = self.folder / "spec.json"
        path.write_bytes(encode_spec(spec))
        stream = io.BytesIO()
        assert (
            train(path, EventWriter(stream, time.monotonic()), StopRequest()) == ExitCode.FINISHED
        )
        self.events = [decode_event(line) for line in stream.getvalue().splitlines()]
        done = [event for event in self.events if isinstance(event, CommandDone)]
        return [decode_answer(self.answer_file(each).read_bytes()) for each in done[stored:]]

    def answer_file(self, done: CommandDone) -> Path:
        return Path(done.dir) / done.answer.name

    @property
    def incoming(self) -> Path:
        return self.folder / "commands"

    @property
    def training(self) -> TrainSpec:
        return TrainSpec(
            base_dir=str(self.base.dir),
            base_id="tiny-llama",
            base_sha256=self.base.sha256,
            train_shards=(),
            out_dir=str(self.folder / "out"),
            resume=self.resume,
            hyper=replace(HYPER, batch_size=1, accumulation=1, dropout=0.0, seed=7, max_length=64),
            precision="fp32",
            threads=1,
            checkpoint_every_steps=self.every,
            keep_checkpoints=20,
        )

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def adapter(self) -> str:
        (finished,) = self.of(Finished)
        sha256: str = finished.adapter_sha256
        return sha256


LEARN: list[tuple[str, Body]] = [
    ("forward_backward", a_pass(1, 2)),
    ("forward_backward", a_pass(3)),
    ("optim_step", STEP),
]


def test_the_loss_falls(tiny: Base, tmp_path: Path) -> None:
    answers = Loop(tiny, tmp_path).run(*LEARN * 4)
    losses = [each.loss for each in answers if isinstance(each, PassAnswer)]
    assert losses[-2] < losses[0] - 1
    assert len(losses) == 8


def test_the_log_probabilities_are_those_of_the_loss(tiny: Base, tmp_path: Path) -> None:
    (answer,) = Loop(tiny, tmp_path).run(("forward", a_pass(1, 2)))
    assert isinstance(answer, PassAnswer)
    assert answer.loss == pytest.approx(-sum(sum(read(row)) for row in answer.logprobs), abs=1e-4)


@pytest.mark.parametrize("every", [1, 3])
def test_a_session_that_goes_on_comes_to_the_same_bytes(
    tiny: Base, tmp_path: Path, every: int
) -> None:
    whole = Loop(tiny, tmp_path / "whole", every=every)
    whole.run(*LEARN * 4)
    checkpoint: Checkpointed = whole.of(Checkpointed)[0]
    candidate = ResumeCandidate(dir=checkpoint.dir, manifest_sha256=checkpoint.manifest_sha256)
    again = Loop(tiny, tmp_path / "again", resume=(candidate,))
    again.run(*(LEARN * 4)[checkpoint.step :], begin=checkpoint.step + 1)
    (started,) = again.of(Started)
    assert started.resumed_from_step == checkpoint.step == 3 * every
    assert again.adapter == whole.adapter
    assert again.of(Finished)[0].tokens == whole.of(Finished)[0].tokens == 8 * 6


@pytest.mark.parametrize("more", [0, 1])  # a pass whose gradients wait for their step
def test_what_waits_for_its_client_has_a_checkpoint_and_says_so(
    tiny: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    loop = Loop(tiny, tmp_path)
    commands = [*LEARN, *LEARN[:more]]
    naps = iter(range(1, 100))

    def sleep(_: float) -> None:
        if next(naps) == 3:
            hand_over(loop.incoming, len(commands) + 1, END)

    minutes = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 61.0 * next(minutes), sleep=sleep)
    monkeypatch.setattr(session_module, "time", clock)
    loop.run(*commands, ends=False)
    waits = loop.of(SessionWaits)
    assert [each.saved for each in waits] == [not more] * len(waits)
    assert len(waits) >= 2
    assert [each.step for each in loop.of(Checkpointed)] == [3][more:]


def test_a_session_that_was_asked_for_nothing_yet_goes_on_from_its_checkpoint(
    tiny: Base, tmp_path: Path
) -> None:
    first = Loop(tiny, tmp_path / "first")
    first.run()
    (checkpoint,) = first.of(Checkpointed)
    candidate = ResumeCandidate(dir=checkpoint.dir, manifest_sha256=checkpoint.manifest_sha256)
    again = Loop(tiny, tmp_path / "again", resume=(candidate,))
    again.run(*LEARN)
    whole = Loop(tiny, tmp_path / "whole")
    whole.run(*LEARN)
    assert again.adapter == whole.adapter


def test_files_that_are_stored_elsewhere_leave_the_disk(tiny: Base, tmp_path: Path) -> None:
    loop = Loop(tiny, tmp_path)
    save = SaveBody(path="tinker://session-1/weights/state")
    commands: list[tuple[str, Body]] = [*LEARN, ("save_state", save), ("save_sampler", save)]
    loop.run(*commands, ("forward", a_pass(1)), stored=4)
    *stored, kept, last = loop.of(CommandDone)
    assert not any(loop.answer_file(each).exists() for each in stored)
    assert [bool(each.saved_dir) for each in stored] == [False, False, False, True]
    assert not Path(stored[-1].saved_dir).exists()
    assert loop.answer_file(kept).exists()
    assert Path(kept.saved_dir).exists()
    assert loop.answer_file(last).exists()


def test_a_saved_state_is_gone_on_from(tiny: Base, tmp_path: Path) -> None:
    first = Loop(tiny, tmp_path / "first")
    save: tuple[str, Body] = ("save_state", SaveBody(path="tinker://a/weights/b"))
    first.run(*LEARN, save, *LEARN)
    saved = next(done.saved_dir for done in first.of(CommandDone) if done.saved)
    second = Loop(tiny, tmp_path / "second")
    load: tuple[str, Body] = ("load_state", LoadBody(path="tinker://a/weights/b", optimizer=True))
    second.run(load, *LEARN, weights=saved)
    assert second.adapter == first.adapter
    third = Loop(tiny, tmp_path / "third")
    third.run(("load_state", LoadBody(path="p", optimizer=False)), *LEARN, weights=saved)
    assert third.adapter != first.adapter


@pytest.mark.parametrize(
    ("loss", "settings"),
    [("importance_sampling", {}), ("ppo", CLIP), ("cispo", CLIP), ("dro", {"beta": 0.1})],
)
def test_policies_are_compared_with_their_sampler(
    tiny: Base, tmp_path: Path, loss: Any, settings: dict[str, float]
) -> None:
    """At the sampler's own log-probabilities the ratio is 1, and what is left can be told."""
    (first,) = Loop(tiny, tmp_path / "first").run(("forward", a_pass(1)))
    assert isinstance(first, PassAnswer)
    old = read(first.logprobs[0])
    row = replace(a_row(1), weights=b"", logprobs=floats(*old), advantages=floats(*[2.0] * 6))
    body = PassBody(loss=loss, rows=(row,), settings=settings)
    (answer,) = Loop(tiny, tmp_path / "second").run(("forward_backward", body))
    assert isinstance(answer, PassAnswer)
    expected = -12.0 if loss in ("importance_sampling", "ppo") else -2 * sum(old)
    assert answer.loss == pytest.approx(expected, rel=1e-5)


def test_sampled_log_probabilities_are_those_of_a_pass(tiny: Base, tmp_path: Path) -> None:
    body = SampleBody(
        prompt=ints(101, 108, 115),
        samples=3,
        tokens_max=5,
        temperature=1.0,
        top_p=1.0,
        top_k=-1,
        seed=3,
        prompt_logprobs=True,
    )
    first, second = Loop(tiny, tmp_path / "a").run(("sample", body), ("sample", body))
    assert isinstance(first, SampleAnswer)
    assert isinstance(second, SampleAnswer)
    assert first == second or first.sequences == second.sequences  # NaN is no equal
    assert len({sequence.tokens for sequence in first.sequences}) > 1
    sequence = first.sequences[0]
    tokens = ints(101, 108, 115) + sequence.tokens
    row = LossRow(
        tokens=tokens[:-4], targets=tokens[4:], weights=floats(*[1.0] * (len(tokens) // 4 - 1))
    )
    (again,) = Loop(tiny, tmp_path / "b").run(
        ("forward", PassBody(loss="cross_entropy", rows=(row,)))
    )
    assert isinstance(again, PassAnswer)
    passed = read(again.logprobs[0])
    assert passed[2:] == pytest.approx(read(sequence.logprobs), abs=1e-5)
    asked = read(first.prompt_logprobs)
    assert math.isnan(asked[0])
    assert asked[1:] == pytest.approx(passed[:2], abs=1e-5)


def test_a_sampler_has_the_weights_that_were_saved(tiny: Base, tmp_path: Path) -> None:
    greedy = SampleBody(
        prompt=ints(101), samples=1, tokens_max=4, temperature=0, top_p=1, top_k=0, seed=0
    )
    first = Loop(tiny, tmp_path / "first")
    save: tuple[str, Body] = ("save_sampler", SaveBody(path="p"))
    answers = first.run(*LEARN * 3, save, ("sample", greedy))
    saved = next(done.saved_dir for done in first.of(CommandDone) if done.saved)
    second = Loop(tiny, tmp_path / "second")
    others = second.run(("sample", greedy), *LEARN, weights=saved)
    assert others[0] == answers[-1]
    third = Loop(tiny, tmp_path / "third")
    third.run(*LEARN)
    assert second.adapter == third.adapter  # it trains on its own weights


def test_weights_that_are_no_numbers_are_not_saved_for_a_sampler(
    tiny: Base, tmp_path: Path
) -> None:
    loop = Loop(tiny, tmp_path)
    wild: tuple[str, Body] = ("optim_step", replace(STEP, learning_rate=1e30, weight_decay=1e30))
    save: tuple[str, Body] = ("save_sampler", SaveBody(path="p"))
    with pytest.raises(WorkError, match="NaN or infinity"):  # its end, where they are kept
        loop.run(LEARN[0], wild, LEARN[0], wild, save)
    answer = decode_answer((tmp_path / "out" / "answers" / "5").read_bytes())
    assert isinstance(answer, FailedAnswer)
    assert "NaN or infinity" in answer.message
    assert not (tmp_path / "out" / "saved" / "5").exists()


def test_the_base_model_is_sampled_beside_what_is_trained(tiny: Base, tmp_path: Path) -> None:
    greedy = SampleBody(
        prompt=ints(101),
        samples=1,
        tokens_max=4,
        temperature=0,
        top_p=1,
        top_k=0,
        seed=0,
        prompt_logprobs=True,
    )
    of_base: tuple[str, Body] = ("sample", replace(greedy, of_base=True))
    (untrained,) = Loop(tiny, tmp_path / "untrained").run(("sample", greedy))
    assert isinstance(untrained, SampleAnswer)
    first = Loop(tiny, tmp_path / "first")
    answers = first.run(*LEARN * 3, LEARN[0], of_base, ("sample", greedy), *LEARN[1:])
    sampled, trained = [each for each in answers if isinstance(each, SampleAnswer)]
    assert sampled.sequences == untrained.sequences != trained.sequences
    second = Loop(tiny, tmp_path / "second")
    second.run(*LEARN * 4)
    assert first.adapter == second.adapter  # gradients that wait are not disturbed


def test_a_loss_that_is_no_number_is_refused_and_drops_its_gradients(
    tiny: Base, tmp_path: Path
) -> None:
    bad = replace(a_row(5), weights=floats(*[math.inf] * 6))
    wrong: tuple[str, Body] = ("forward_backward", PassBody(loss="cross_entropy", rows=(bad,)))
    loop = Loop(tiny, tmp_path / "a")
    _, answer, *_ = loop.run(LEARN[0], wrong, *LEARN)
    assert isinstance(answer, FailedAnswer)
    assert "gradients since the last optim_step are dropped" in answer.message
    plain = Loop(tiny, tmp_path / "b")
    plain.run(*LEARN)
    assert loop.adapter == plain.adapter

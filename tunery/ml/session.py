"""A process that takes commands of a tenant's own training loop, one after the other.

It has the adapter, optimizer and checkpoints of a training. Nothing that it computes depends on
when a command came, on what else it has done or on random numbers but those of a seed. So a process
that continues from a checkpoint, and takes the commands after it, comes to the same bytes.

A checkpoint is written only where no gradients wait for a step: those are computed again.
"""

import math
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, assert_never

import torch
from transformers import AutoTokenizer

from schemas.units import Tokens
from tunery.ml import checkpoints, device, state
from tunery.ml.adamw import forget_steps
from tunery.ml.durable import digest_file, new_directory
from tunery.ml.engines.whole import WholeEngine
from tunery.ml.events import EventWriter
from tunery.ml.fine_tuning import ADAPTER, check_base
from tunery.ml.model import LoadBase, load_base, load_model
from tunery.ml.ranks import ALONE
from tunery.ml.sampling import bytes_of, joins_rows, sample, target_logprobs, tokens_of
from tunery.ml.stop import StopRequest
from tunery.ml.token_losses import loss_of
from tunery.ml.trained import write_trained
from tunery.work.events import (
    Checkpointed,
    CommandDone,
    FileDigest,
    Finished,
    Preempted,
    SessionWaits,
    Started,
)
from tunery.work.exits import ExitCode, WorkError
from tunery.work.session import (
    END,
    Answer,
    FailedAnswer,
    HandedCommand,
    LoadBody,
    LossRow,
    PassAnswer,
    PassBody,
    PathAnswer,
    SampleAnswer,
    SampleBody,
    SaveBody,
    SessionSpec,
    StepAnswer,
    StepBody,
    decode_body,
    decode_handed,
    encode_body,
)

LOOK_S: Final = 0.005  # between two looks for a command
SAY_S: Final = 5.0  # how often the process says that it waits
IDLE_SAVE_S: Final = 60.0  # what waits without commands has no older checkpoint
ANSWERS: Final = "answers"
SAVED: Final = "saved"


class Unusable(Exception):
    """A command that cannot be done, in words for its client. Nothing has changed."""


def take_commands(
    spec: SessionSpec, events: EventWriter, must_stop: StopRequest, load: LoadBase = load_base
) -> ExitCode:
    """Take commands until the last one, or until asked to stop. Raises WorkError."""
    training = spec.training
    hyper = training.hyper
    threads = device.make_deterministic(training.threads, 1)
    names = training.devices
    torch_device = device.pick_device(training.accelerators, names[0] if names else "")
    checkpoints.prepare(Path(training.out_dir))
    check_base(training)
    precision: str = device.precision_on(torch_device, training.precision)
    run = {
        "base": training.base_sha256,
        "rank": str(hyper.rank),
        "seed": str(hyper.seed),
        "layers": " ".join(hyper.target_modules),
        "precision": precision,
    }
    loaded, skipped = checkpoints.choose(
        training.resume, lambda manifest: checkpoints.first_difference(run, manifest.run)
    )
    model = load_model(training, hyper, precision, torch_device, load)
    model.eval()  # the base has no dropout then, and the adapter never has
    environment = device.environment(torch_device, threads, hyper.batch_size)
    session = LoopProcess(spec, events, model, run, environment)
    changes: tuple[tuple[str, str, str], ...] = ()
    if loaded is not None:
        session.go_on(Path(loaded[0].dir), loaded[1].step, loaded[1].tokens)
        changes = checkpoints.differences(environment, loaded[1].environment)
    events.emit(
        Started(
            resumed_from_step=session.seq,
            loaded_manifest=loaded[0].manifest_sha256 if loaded else None,
            skipped=skipped,
            total_steps=0,
            tokens_total=0,
            tokens=session.tokens,
            hyper=hyper,
            precision=precision,
            environment=environment,
            environment_changes=changes,
            rows=0,
            labels=0,
            packing_difference_nats=None,
        )
    )
    for command in _commands(Path(spec.commands_dir), session, must_stop):
        session.do(command)
    if must_stop():
        session.save()
        events.emit(Preempted(step=session.seq))
        return ExitCode.PREEMPTED
    session.finish()
    return ExitCode.FINISHED


def _commands(
    folder: Path, session: "LoopProcess", must_stop: StopRequest
) -> Iterator[HandedCommand]:
    """Yield commands as they come, until the last one or a request to stop."""
    number, said_s = 1, time.monotonic()
    while not must_stop():
        path = folder / str(number)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            if time.monotonic() - said_s > SAY_S:
                said_s = time.monotonic()
                session.wait()
            time.sleep(LOOK_S)
            continue
        path.unlink()
        if content == END:
            return
        number += 1
        yield decode_handed(content)
        said_s = time.monotonic()


class LoopProcess:
    """The model that is trained, and the commands that are done."""

    def __init__(
        self,
        spec: SessionSpec,
        events: EventWriter,
        model: Any,
        run: dict[str, str],
        environment: dict[str, str],
    ) -> None:
        self._spec, self._events, self._model = spec.training, events, model
        self._run, self._environment = run, environment
        self._engine = WholeEngine(model, self._spec.hyper, ALONE)
        self._device = next(model.parameters()).device
        self._out = Path(self._spec.out_dir)
        self.seq = 0  # number of the last command that has changed something
        self.tokens: Tokens = 0  # that were trained on
        self._saved_seq: int | None = None  # of the newest checkpoint of this attempt
        self._saved_at_s = time.monotonic()
        self._steps = 0  # since the last checkpoint
        self._has_gradients = False
        self._answers = 0
        self._unstored: deque[tuple[Path, str]] = deque()  # answers, with folders of what is saved
        self._begin_moments()

    @cached_property
    def _tokenizer(self) -> Any:
        """The base model's, which the first sample loads: a pass needs none."""
        return AutoTokenizer.from_pretrained(self._spec.base_dir)

    def go_on(self, folder: Path, seq: int, tokens: Tokens) -> None:
        """Continue from a checkpoint."""
        self._engine.load(folder)
        self.seq, self.tokens = seq, tokens

    def do(self, command: HandedCommand) -> None:
        """Do a command, and say what came of it."""
        self._remove_stored(command.stored)
        saved_dir, saved = "", tuple[FileDigest, ...]()
        try:
            body = decode_body(command.body)
            match body:
                case PassBody():
                    answer: Answer = self._pass(command, body)
                case StepBody():
                    answer = self._step(body)
                case LoadBody():
                    answer = self._load(command, body)
                case SaveBody():
                    folder = self._save_weights(command)
                    saved_dir, saved = str(folder), _digests(folder)
                    answer = PathAnswer(path=body.path)
                case SampleBody():
                    with self._weights_of(command.weights_dir, of_base=body.of_base):
                        answer = sample(self._model, self._tokenizer, body)
                case _:
                    assert_never(body)
        except Unusable as problem:
            answer = FailedAnswer(message=str(problem))
        if not command.sampler:
            self.seq = command.seq
        self._say(command, answer, saved_dir, saved)
        if isinstance(answer, StepAnswer) or command.kind == "load_state":
            self._save_if_due()

    def wait(self) -> None:
        """Say that there is no command to do, and whether stopping the process would lose work."""
        if time.monotonic() - self._saved_at_s > IDLE_SAVE_S:
            self.save()
        is_saved = not self._has_gradients and self.seq == self._saved_seq
        self._events.emit(SessionWaits(saved=is_saved))

    def save(self) -> None:
        """Write a checkpoint, unless gradients wait or nothing is new.

        The first one of an attempt is written all the same: it says until when work is paid for.
        """
        if self._has_gradients or self.seq == self._saved_seq:
            return
        began_s, elapsed_ms = time.monotonic(), self._events.elapsed_ms()
        snapshot = self._snapshot()
        written = checkpoints.write(
            self._out,
            snapshot.write,
            step=self.seq,
            tokens=self.tokens,
            run=self._run,
            environment=self._environment,
        )
        checkpoints.keep_newest(self._out, self._spec.keep_checkpoints)
        self._saved_seq, self._saved_at_s, self._steps = self.seq, time.monotonic(), 0
        took_ms = round(1_000 * (time.monotonic() - began_s))
        self._events.emit(
            Checkpointed(
                step=self.seq,
                epoch=0.0,
                dir=written.dir,
                manifest_sha256=written.manifest_sha256,
                tokens=self.tokens,
                files=written.files,
                captured_elapsed_ms=elapsed_ms,
                captured_monotonic_ms=int(1_000 * began_s),
                write_ms=took_ms,
                background_ms=took_ms,
            )
        )

    def finish(self) -> None:
        """Write what is trained as a training does."""
        self.save()
        canonical = self._write_adapter(self._out / ADAPTER)
        self._events.emit(
            Finished(
                adapter_dir=str(self._out / ADAPTER),
                adapter_sha256=canonical["sha256"],
                config_sha256=canonical["config_sha256"],
                files=_digests(self._out / ADAPTER),
                steps=self.seq,
                tokens=self.tokens,
                final_loss=None,
            )
        )

    # --- commands
    def _pass(self, command: HandedCommand, body: PassBody) -> PassAnswer:
        """A pass over all rows, several at a time where they do not see each other."""
        trains = command.kind == "forward_backward"
        row_logprobs: list[bytes] = []
        total = 0.0
        for rows in self._passes(body.rows):
            with torch.set_grad_enabled(trains):
                pairs = [
                    (tokens_of(row.tokens, self._device), tokens_of(row.targets, self._device))
                    for row in rows
                ]
                logprobs = target_logprobs(self._model, pairs)
                losses = [
                    loss_of(body.loss, each, row, body.settings)
                    for each, row in zip(logprobs, rows, strict=True)
                ]
                loss = torch.stack(losses).sum()
            value = float(loss.detach())
            if not math.isfinite(value):
                self._drop_gradients()
                raise Unusable(
                    f"the loss is {value}: the gradients since the last optim_step are dropped. "
                    "Lower the learning rate, or look at weights and advantages."
                )
            if trains:
                self._engine.backward(loss, is_last=False)
                self._has_gradients = True
            total += value
            row_logprobs += map(bytes_of, logprobs)
        if trains:
            self.tokens += command.tokens
        return PassAnswer(logprobs=tuple(row_logprobs), loss=total)

    def _passes(self, rows: tuple[LossRow, ...]) -> Iterator[list[LossRow]]:
        """Yield the rows of each pass: at most `max_length` tokens, or one row."""
        joins, most = joins_rows(self._model), self._spec.hyper.max_length
        group: list[LossRow] = []
        for row in rows:
            tokens = sum(len(each.tokens) for each in (*group, row)) // 4
            if group and (not joins or tokens > most):
                yield group
                group = []
            group.append(row)
        if group:
            yield group

    def _step(self, body: StepBody) -> StepAnswer:
        optimizer = self._engine.optimizer
        for settings in optimizer.param_groups:
            settings["lr"] = body.learning_rate
            settings["betas"] = (body.beta1, body.beta2)
            settings["eps"] = body.eps
            settings["weight_decay"] = body.weight_decay
        norm = float(self._engine.clip(body.grad_clip_norm or math.inf))
        if not math.isfinite(norm):
            self._drop_gradients()
            raise Unusable(f"the gradient norm is {norm}: the gradients are dropped")
        self._engine.step()
        self._has_gradients = False
        self._steps += 1
        return StepAnswer(grad_norm=norm)

    def _load(self, command: HandedCommand, body: LoadBody) -> PathAnswer:
        folder = Path(command.weights_dir)
        self._drop_gradients()
        try:
            self._engine.load(folder)
        except Exception as error:  # torch's own, of several kinds; the shapes are checked before
            raise Unusable(f"{body.path} is not of such an adapter: {error}") from error
        if not body.optimizer:
            forget_steps(self._engine.optimizer)
        return PathAnswer(path=body.path)

    def _save_weights(self, command: HandedCommand) -> Path:
        """Write what a training can go on from, or what is sampled from."""
        folder = self._out / SAVED / command.name
        if command.kind == "save_sampler":
            try:
                self._write_adapter(folder)
            except WorkError as error:  # weights that are no numbers
                raise Unusable(str(error)) from error
            return folder
        with new_directory(folder) as partial:
            self._snapshot().write(partial)
        return folder

    def _write_adapter(self, folder: Path) -> Any:
        return write_trained(
            self._model,
            self._engine.trained(),
            self._spec.base_id,
            Path(self._spec.base_dir),
            folder,
        )

    @contextmanager
    def _weights_of(self, folder: str, *, of_base: bool) -> Iterator[None]:
        """Have the model compute with saved weights or with none, and then with its own again."""
        if of_base:
            with self._model.disable_adapter():
                yield
            return
        if not folder:
            yield
            return
        own = {
            name: weight.detach().clone() for name, weight in state.trainable(self._model).items()
        }
        try:
            state.load_adapter(Path(folder), self._model)
        except RuntimeError as error:
            raise Unusable(f"the weights are of another adapter: {error}") from error
        try:
            yield
        finally:
            with torch.no_grad():
                for name, weight in state.trainable(self._model).items():
                    weight.copy_(own[name])

    # --- state
    def _begin_moments(self) -> None:
        """Give the optimizer the moments that it has before its first step."""
        optimizer = self._engine.optimizer
        for weight in (each for group in optimizer.param_groups for each in group["params"]):
            kept = weight.device if optimizer.defaults["fused"] else "cpu"
            optimizer.state[weight] = {
                "step": torch.zeros((), device=kept),
                "exp_avg": torch.zeros_like(weight),
                "exp_avg_sq": torch.zeros_like(weight),
            }

    def _drop_gradients(self) -> None:
        self._engine.optimizer.zero_grad()
        for weight in state.trainable(self._model).values():
            weight.grad = None
        self._has_gradients = False

    def _snapshot(self) -> state.Snapshot:
        return state.take(
            engine=self._engine,
            base_id=self._spec.base_id,
            progress={"step": self.seq, "tokens": self.tokens},
            best={},
            texts={},
            copies=state.Copies(in_place=True),
        )

    def _save_if_due(self) -> None:
        spec = self._spec
        unsaved_ms = 1_000 * (time.monotonic() - self._saved_at_s)
        if self._steps >= spec.checkpoint_every_steps or unsaved_ms >= spec.checkpoint_every_ms:
            self.save()

    def _say(
        self,
        command: HandedCommand,
        answer: Answer,
        saved_dir: str,
        saved: tuple[FileDigest, ...],
    ) -> None:
        self._answers += 1
        folder = self._out / ANSWERS
        folder.mkdir(exist_ok=True)
        path = folder / str(self._answers)
        path.write_bytes(encode_body(answer))
        self._unstored.append((path, saved_dir))
        sequences = answer.sequences if isinstance(answer, SampleAnswer) else ()
        self._events.emit(
            CommandDone(
                name=command.name,
                dir=str(folder),
                answer=digest_file(path),
                failed=isinstance(answer, FailedAnswer),
                saved_dir=saved_dir,
                saved=saved,
                sampled=sum(len(sequence.tokens) // 4 for sequence in sequences),
            )
        )

    def _remove_stored(self, stored: int) -> None:
        """Remove the files of answers that the agent has stored, up to this number of them."""
        while len(self._unstored) > max(0, self._answers - stored):
            path, saved_dir = self._unstored.popleft()
            path.unlink()
            if saved_dir:
                shutil.rmtree(saved_dir)


def _digests(folder: Path) -> tuple[FileDigest, ...]:
    return tuple(digest_file(path) for path in sorted(folder.iterdir()))

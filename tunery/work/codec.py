"""Specs, events and scores to bytes and back.

Every decoder raises msgspec.MsgspecError, which names the field that is wrong.
"""

import json
from typing import Final

import msgspec
from msgspec.structs import replace

from schemas.units import Ms
from tunery.work.events import AnyWorkEvent, ColocatedEvent
from tunery.work.replica import ReplicaSpec
from tunery.work.scores import Scores
from tunery.work.session import SessionSpec
from tunery.work.spec import ColocatedSpec, ScoreSpec, TrainSpec, VariantsSpec

_EVENTS: Final = msgspec.json.Decoder(AnyWorkEvent)
_TRAIN_SPECS: Final = msgspec.json.Decoder(TrainSpec)
_COLOCATED_SPECS: Final = msgspec.json.Decoder(ColocatedSpec)
_VARIANTS_SPECS: Final = msgspec.json.Decoder(VariantsSpec)
_SESSION_SPECS: Final = msgspec.json.Decoder(SessionSpec)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def encode_event(event: AnyWorkEvent, elapsed_ms: Ms) -> bytes:
    """One line without its line feed."""
    return msgspec.json.encode(replace(event, elapsed_ms=elapsed_ms))


def decode_event(line: bytes) -> AnyWorkEvent:
    """The event in one line. Raises msgspec.MsgspecError for anything else."""
    event: AnyWorkEvent = _EVENTS.decode(line)
    return event


def encode_colocated_event(training: str, event: AnyWorkEvent, elapsed_ms: Ms) -> bytes:
    """One line without its line feed. training: its name"""
    timed = replace(event, elapsed_ms=elapsed_ms)
    return msgspec.json.encode(ColocatedEvent(training=training, event=timed))


# these raise msgspec.MsgspecError for anything else
decode_colocated_event: Final = msgspec.json.Decoder[ColocatedEvent](ColocatedEvent).decode


def encode_spec(
    spec: TrainSpec | ColocatedSpec | VariantsSpec | SessionSpec | ScoreSpec | ReplicaSpec,
) -> bytes:
    """The content of a spec file."""
    return msgspec.json.encode(spec)


def decode_train_spec(data: bytes) -> TrainSpec:
    """A spec of a training process. Ranges are not checked here, see `tunery.ml.inputs`."""
    return _TRAIN_SPECS.decode(data)


def decode_training(data: bytes) -> TrainSpec | ColocatedSpec | VariantsSpec | SessionSpec:
    """A spec of a process with one training, several, or a session. Ranges are not checked."""
    fields = _FIELDS.decode(data)
    if "trainings" in fields:
        return _COLOCATED_SPECS.decode(data)
    if "commands_dir" in fields:
        return _SESSION_SPECS.decode(data)
    return _VARIANTS_SPECS.decode(data) if "hypers" in fields else _TRAIN_SPECS.decode(data)


# these raise msgspec.MsgspecError for anything else
decode_score_spec: Final = msgspec.json.Decoder[ScoreSpec](ScoreSpec).decode


def encode_scores(scores: Scores) -> bytes:
    """A results file. Equal scores give equal bytes: keys are sorted."""
    return f"{json.dumps(msgspec.to_builtins(scores), indent=2, sort_keys=True)}\n".encode()


# these raise msgspec.MsgspecError for anything else
decode_scores: Final = msgspec.json.Decoder[Scores](Scores).decode

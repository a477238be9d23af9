"""One of every event."""

from typing import Final

from tunery.work.events import (
    AnyWorkEvent,
    Checkpointed,
    CommandDone,
    Evaluated,
    Failed,
    FileDigest,
    Finished,
    LossSpiked,
    Noted,
    Preempted,
    RankBeat,
    ReplicaAlive,
    ReplicaReady,
    Sampled,
    ScoringFinished,
    ScoringProgressed,
    ScoringStarted,
    SessionWaits,
    Started,
    StepCompleted,
)
from tunery.work.spec import Hyper

FILE: Final = FileDigest(name="adapter.safetensors", sha256="0" * 64, bytes=7)
HYPER: Final = Hyper(
    n_epochs=1,
    batch_size=1,
    learning_rate=2e-4,
    rank=4,
    alpha=8,
    dropout=0.0,
    max_length=128,
    warmup=0.0,
    weight_decay=0.0,
    seed=1,
)
STARTED: Final = Started(
    resumed_from_step=0,
    loaded_manifest=None,
    skipped=(),
    total_steps=3,
    tokens_total=30,
    tokens=0,
    hyper=HYPER,
    precision="fp32",
    environment={"threads": "1"},
    rows=3,
    labels=15,
    packing_difference_nats=0.0,
)
CHECKPOINTED: Final = Checkpointed(
    step=5,
    epoch=1.0,
    dir="out/step-00000005",
    manifest_sha256="1" * 64,
    tokens=5,
    files=(FILE,),
    captured_elapsed_ms=1,
    captured_monotonic_ms=1,
    write_ms=1,
)
EVENTS: Final[tuple[AnyWorkEvent, ...]] = (
    STARTED,
    StepCompleted(
        step=1,
        total_steps=3,
        epoch=0.333333,
        loss=2.5,
        grad_norm=None,
        learning_rate=1e-4,
        mean_token_accuracy=0.25,
        tokens=10,
        tokens_total=30,
    ),
    Evaluated(step=1, valid_loss=None),
    LossSpiked(step=2, loss=9.0, message="the loss rose"),
    Noted(step=2, message="the training ends early"),
    Sampled(step=2, prompt="Who?", answer="I."),
    CHECKPOINTED,
    Finished(
        adapter_dir="out/adapter",
        adapter_sha256="2" * 64,
        config_sha256="3" * 64,
        files=(FILE,),
        steps=3,
        tokens=30,
        final_loss=None,
    ),
    ScoringStarted(items=200, prompts=3),
    ScoringProgressed(stage="items_base", done=8, total=200),
    ScoringFinished(results="scores.json", sha256="4" * 64, bytes=9),
    ReplicaReady(),
    ReplicaAlive(),
    RankBeat(rank=1, step=2, phase="forward", micro_batch=1, moved=9, collective="all_reduce"),
    CommandDone(
        name="2-optim_step", dir="out/2", answer=FILE, saved_dir="out/state", saved=(FILE,)
    ),
    SessionWaits(saved=True),
    Preempted(step=2, checkpoint="out/step-00000002"),
    Failed(cause="oom", message="out of memory", advice="Lower batch_size."),
)

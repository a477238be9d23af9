"""Training under a lease while object storage is away: nothing that was paid for is thrown away."""

import dataclasses
import json
import shutil
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from schemas import pool, training
from schemas.dataset import ChatFormat
from schemas.topics import POOL, TELEMETRY
from schemas.training import LeaseHardware
from services.trainer.adapters.processes import ProcessGroups
from services.trainer.domain.rank_times import STEPS
from services.trainer.effect import program
from services.trainer.effect.gang_following import FollowingGang
from services.trainer.effect.program import Tools
from services.trainer.effect.reports import Reports
from services.trainer.effect.training import Training, speed_class
from services.trainer.settings import TrainerSettings
from simulator.control_plane.samples import PREPARED
from tests.otlp import receiving_spans
from tests.unit.services.ingest.base import TEMPLATE, make_base
from tests.unit.services.trainer.domain.test_evolve import SHA, grant
from tests.unit.services.trainer.effect.outages import SleepClock, UnavailableBlobs
from tests.unit.tunery.work.samples import CHECKPOINTED, STARTED
from tunery.confinement.taking import NotTaken
from tunery.platform.memory_servers import MemoryServers, memory_servers
from tunery.ranks.launching import RankLayout
from tunery.runtime.blobs.abstract import BlobsUnavailable
from tunery.runtime.blobs.memory import MemoryBlobs
from tunery.runtime.bus.partitioner import partition_of
from tunery.runtime.clock import SystemClock
from tunery.runtime.journal.codec import codec_of, decode_envelope
from tunery.runtime.telemetry.traces import ENDPOINTS, start_traces, stop_traces
from tunery.runtime.telemetry.trail import Trail, trail_context
from tunery.work.codec import decode_train_spec, decode_training
from tunery.work.events import (
    Checkpointed,
    Evaluated,
    FileDigest,
    Finished,
    LossSpiked,
    Noted,
    Sampled,
    SkippedCandidate,
    StepCompleted,
)
from tunery.work.exits import WorkError
from tunery.work.software import installed_software
from tunery.work.spec import TrainSpec, VariantsSpec

CONTENT = b"weights"
WORK = training.TrainWork(
    base_id="b",
    base_sha256=SHA,
    base_path="/b",
    prepared=replace(PREPARED, train_sha256=sha256(CONTENT).hexdigest(), validation_rows=0),
    hyper=training.HyperParameters(
        n_epochs=1,
        batch_size=1,
        learning_rate_ppb=200_000,
        rank=4,
        alpha=8,
        dropout_ppm=0,
        warmup_ppm=0,
        weight_decay_ppm=0,
        max_length=128,
        seed=1,
    ),
)


async def under_lease(
    blobs: MemoryBlobs,
    folder: Path,
    checkpoints: tuple[training.Checkpoint, ...] = (),
    threads: int = 1,
    asked: int = 0,
    share_ppm: int = 0,
    slots: int = 1,
    members: tuple[pool.LeaseMember, ...] = (),
) -> tuple[Training, MemoryServers]:
    """`threads`: as the node says; `asked`: as the job says; `share_ppm`: of checkpoints."""
    servers = await memory_servers(SleepClock())
    there = MemoryServers(servers.log, blobs, servers.keys, servers.clock)
    runtime = there.runtime("trainer")
    launcher = ProcessGroups(mark=str(folder))
    tools = Tools(runtime, launcher, Reports(runtime, "default"), "a1", lambda: None)
    hyper = replace(WORK.hyper, threads=asked, checkpoint_share_ppm=share_ppm)
    work = replace(WORK, hyper=hyper)
    lease = grant(slots, role="train", work=work, checkpoints=checkpoints)
    if members:
        every = sum(member.slots for member in members)
        placement = replace(lease.placement, slots=every)
        lease = replace(lease, members=members, placement=placement)
    settings = TrainerSettings(
        id="a", pool="default", slots=1, work_dir=folder, threads=threads, fabric="ib0"
    )
    program = Training(lease, work, tools, settings)
    program.folder = folder
    return program, there


def checkpointed(folder: Path, step: int) -> Checkpointed:
    """The event of the training process, and the file it names."""
    directory = folder / f"step-{step}"
    directory.mkdir()
    (directory / "adapter.safetensors").write_bytes(CONTENT)
    file = FileDigest(
        name="adapter.safetensors", sha256=sha256(CONTENT).hexdigest(), bytes=len(CONTENT)
    )
    return replace(
        CHECKPOINTED,
        step=step,
        dir=str(directory),
        manifest_sha256=f"{step:064x}",
        tokens=step,
        files=(file,),
    )


async def reported(there: MemoryServers) -> list[int]:
    """Steps of the checkpoints that were reported to the pool."""
    reader = await there.log.reader(POOL.commands.name, {partition_of(b"default"): 0})
    records = await reader.poll(10, 100)
    await reader.close()
    commands = [codec_of(POOL).command(decode_envelope(record.value)) for record in records]
    return [
        command.checkpoint.step
        for command in commands
        if isinstance(command, pool.ReportCheckpoint)
    ]


async def test_a_short_outage_of_storage_delays_a_checkpoint(tmp_path: Path) -> None:
    training, there = await under_lease(UnavailableBlobs(3), tmp_path)
    await training.handle(checkpointed(tmp_path, 5))
    assert await reported(there) == [5]
    assert list(there.blobs.bodies.values()) == [CONTENT]


async def test_a_checkpoint_deleted_by_the_training_is_not_stored(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    deleted, newer = checkpointed(tmp_path, 5), checkpointed(tmp_path, 10)
    (tmp_path / "step-5" / "adapter.safetensors").unlink()
    await training.handle(deleted)
    await training.handle(newer)
    assert await reported(there) == [10]


async def test_an_outage_without_end_fails_the_attempt(tmp_path: Path) -> None:
    training, there = await under_lease(UnavailableBlobs(1_000_000), tmp_path)
    with pytest.raises(BlobsUnavailable):
        await training.handle(checkpointed(tmp_path, 5))
    assert there.clock.monotonic_ms() >= program.OUTAGE_MS_MAX


def kept(manifest: str) -> training.Checkpoint:
    """A checkpoint of step 7, as a grant names it."""
    file = training.BlobFile(
        name="manifest.json",
        blob=f"t/acme/{manifest}",
        sha256=sha256(CONTENT).hexdigest(),
        bytes=len(CONTENT),
    )
    return training.Checkpoint(
        attempt=1,
        step=7,
        epoch_ppm=1,
        tokens=7,
        manifest_sha256=manifest,
        files=(file,),
        captured_ms=1,
    )


async def test_training_m10_threads_are_the_jobs_and_changes_are_reported(tmp_path: Path) -> None:
    """Finding M10: two nodes of different size gave different bits, and changes were dropped."""
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    for asked, threads in ((3, 3), (0, 7)):
        training, _ = await under_lease(blobs, tmp_path, threads=7, asked=asked)
        await training.prepare(tmp_path)
        assert decode_train_spec((tmp_path / "spec.json").read_bytes()).threads == threads
    changes = (("instructions", "AVX512", "AVX2"), ("numpy", "", "2.4.6"))
    started = await training.handle(replace(STARTED, environment_changes=changes))
    assert started is not None
    assert [(change.name, change.before, change.now) for change in started.changes] == [*changes]
    assert started.environment == {**STARTED.environment, **installed_software()}


async def test_a_training_on_several_slots_has_a_rank_for_each(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    for slots, ranks in ((1, None), (2, RankLayout(2, range(2)))):
        training, _ = await under_lease(blobs, tmp_path, slots=slots)
        assert (await training.prepare(tmp_path))[:2] == ("-m", "tunery.ml.train")
        assert decode_train_spec((tmp_path / "spec.json").read_bytes()).ranks == slots
        assert training.access.ranks == ranks


async def test_a_training_on_several_devices_has_a_rank_on_each(tmp_path: Path) -> None:
    """Each process checks that it sees them all, and that its own is among them."""
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    training, _ = await under_lease(blobs, tmp_path, slots=2)
    lease, names = training.grant, tuple(f"GPU-{number}" for number in range(8))
    training.grant = replace(
        lease,
        lease=replace(lease.lease, hardware=LeaseHardware(device="cuda")),
        member=replace(lease.member, devices=(1, 6)),
    )
    training.tools = dataclasses.replace(training.tools, device_names=names)
    await training.prepare(tmp_path)
    spec = decode_train_spec((tmp_path / "spec.json").read_bytes())
    assert (spec.ranks, spec.accelerators, spec.devices) == (2, 2, ("GPU-1", "GPU-6"))
    assert training.access.ranks == RankLayout(2, range(2), devices=("GPU-1", "GPU-6"))


async def test_a_member_of_several_starts_its_own_ranks_of_all(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    both = tuple(
        pool.LeaseMember(node_id=name, incarnation=f"{name}1", slots=2, devices=(0, 1))
        for name in "ba"
    )
    training, _ = await under_lease(blobs, tmp_path, slots=2, members=both)
    await training.prepare(tmp_path)
    assert decode_train_spec((tmp_path / "spec.json").read_bytes()).ranks == 4
    assert isinstance(training.gang, FollowingGang)
    training.gang._store = "tcp://192.0.2.1:29500"
    training.gang._has_met.set()
    access = await training.gang.placed(training.access)
    assert access.ranks == RankLayout(
        4, range(2, 4), node=1, store="tcp://192.0.2.1:29500", interface="ib0"
    )
    assert access.ranks.environment(3, tmp_path, shares_memory=True) == {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1", "TUNERY_RENDEZVOUS": "tcp://192.0.2.1:29500",
        "GLOO_SOCKET_IFNAME": "ib0", "NCCL_SOCKET_IFNAME": "ib0", "NCCL_CUMEM_ENABLE": "0",
    }  # fmt: skip
    started = await training.handle(STARTED)
    assert started is not None, "its elapsed time counts from here"
    assert not training.leads, "the first member reports it"
    await training.close()


async def test_the_process_knows_what_share_of_its_time_checkpoints_may_take(
    tmp_path: Path,
) -> None:
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    training, _ = await under_lease(blobs, tmp_path, share_ppm=20_000)
    await training.prepare(tmp_path)
    assert decode_train_spec((tmp_path / "spec.json").read_bytes()).checkpoint_share == 0.02


async def test_of_two_checkpoints_of_one_step_the_whole_one_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged, whole, blobs = kept("a" * 64), kept("b" * 64), MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    await blobs.put(damaged.files[0].blob, b"damaged")
    await blobs.put(whole.files[0].blob, CONTENT)
    training, _ = await under_lease(blobs, tmp_path, (damaged, whole))
    await training.prepare(tmp_path)
    (resume,) = msgspec.json.decode((tmp_path / "spec.json").read_bytes())["resume"]
    assert resume["manifest_sha256"] == whole.manifest_sha256
    assert (Path(resume["dir"]) / "manifest.json").read_bytes() == CONTENT
    passed_over = SkippedCandidate(
        dir=resume["dir"], manifest_sha256=resume["manifest_sha256"], reason="of another base"
    )
    started = await training.handle(replace(STARTED, skipped=(passed_over,)))
    assert started is not None
    assert [skip.manifest_sha256[0] for skip in started.skipped] == ["a", "b"]
    # On the log it is a code; what the process said is for the operator.
    (warning,) = [record for record in caplog.records if record.message == "checkpoint.unusable"]
    assert vars(warning)["fields"] == {
        "manifest_sha256": whole.manifest_sha256,
        "reason": "of another base",
    }


async def test_variants_are_one_process_with_one_checkpoint(tmp_path: Path) -> None:
    """What it names lies in folders of its own, also after it was stored and fetched."""
    blobs = MemoryBlobs()
    digest = sha256(CONTENT).hexdigest()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    first, there = await under_lease(blobs, tmp_path)
    first._work = replace(WORK, variants=(WORK.hyper, replace(WORK.hyper, rank=16)))
    (tmp_path / "out" / "1").mkdir(parents=True)
    (tmp_path / "out" / "1" / "weights").write_bytes(CONTENT)
    file = FileDigest(name="1/weights", sha256=digest, bytes=len(CONTENT))
    event = replace(CHECKPOINTED, dir=str(tmp_path / "out"), files=(file,))
    await first.handle(event)
    assert await reported(there) == [event.step]
    (key,) = (key for key in blobs.bodies if "checkpoints" in key)
    stored = training.BlobFile(name=file.name, blob=key, sha256=digest, bytes=len(CONTENT))
    again, _ = await under_lease(blobs, tmp_path, (replace(kept("a" * 64), files=(stored,)),))
    again._work = first._work
    await again.prepare(tmp_path)
    spec = decode_training((tmp_path / "spec.json").read_bytes())
    assert isinstance(spec, VariantsSpec)
    assert [hyper.rank for hyper in spec.hypers] == [4, 16]
    assert again.access.read == (Path("/b"),)
    (candidate,) = spec.training.resume
    assert (Path(candidate.dir) / file.name).read_bytes() == CONTENT
    # a name that leads elsewhere is neither stored nor fetched
    with pytest.raises(NotTaken):
        await first.handle(replace(event, files=(replace(file, name="../../outside"),)))
    hostile = replace(stored, name="../outside")
    hostile_one, _ = await under_lease(
        blobs, tmp_path, (replace(kept("b" * 64), files=(hostile,)),)
    )
    with pytest.raises(NotTaken):
        await hostile_one.prepare(tmp_path)


STEP = StepCompleted(
    step=3,
    total_steps=9,
    epoch=0.5,
    loss=2.5,
    grad_norm=1.5,
    learning_rate=1e-4,
    mean_token_accuracy=0.25,
    tokens=30,
    tokens_total=90,
    elapsed_ms=700,
    tokens_per_s=312.5,
    memory_bytes=2_170_000_000,
)


async def test_a_slow_rank_is_named_once_in_the_log_of_its_job(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    await there.blobs.put(WORK.prepared.train_blob, CONTENT)
    await training.handle(STARTED)
    for _ in range(2 * STEPS):
        await training.handle(replace(STEP, rank_ms=(100, 100, 230, 100)))
    reader = await there.log.reader(TELEMETRY.name, {partition_of(b"job1"): 0})
    records = [msgspec.json.decode(record.value) for record in await reader.poll(100, 100)]
    await reader.close()
    lines = [record for record in records if "text" in record]
    assert [line["level"] for line in lines] == ["warn"]
    assert lines[0]["text"].startswith("step 3: rank 2 of 4 takes 2.3 times as long for a micro-")


async def test_steps_losses_and_spikes_are_telemetry(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    await training.handle(Evaluated(step=0, valid_loss=9.0))  # before the first step: dropped
    await training.handle(STEP)
    await training.handle(Evaluated(step=3, valid_loss=2.75, valid_accuracy=0.5))
    await training.handle(LossSpiked(step=3, loss=2.5, message="the loss rose"))
    await training.handle(Noted(step=3, message="the training ends early"))
    await training.handle(Sampled(step=3, prompt="Who?", answer="I."))
    reader = await there.log.reader(TELEMETRY.name, {partition_of(b"job1"): 0})
    records = [msgspec.json.decode(record.value) for record in await reader.poll(10, 100)]
    await reader.close()
    assert [record.get("valid_loss") for record in records] == [None, 2.75, None, None, None]
    first, evaluated, spike, note, sample = records
    assert (sample["level"], sample["text"]) == ("info", "step 3: to 'Who?' the model answers 'I.'")
    assert evaluated["valid_accuracy"] == 0.5
    assert (first["job_id"], first["attempt"], first["step"], first["total_steps"]) == (
        "job1",
        1,
        3,
        9,
    )
    assert (first["loss"], first["accuracy"], first["learning_rate"]) == (2.5, 0.25, 1e-4)
    assert (first["tokens"], first["elapsed_ms"]) == (30, 700)
    assert (first["node_id"], first["node_type"]) == ("a", "")
    assert first["work"] == speed_class(WORK, 1)
    assert (first["tokens_per_s"], first["memory_bytes"]) == (312.5, 2_170_000_000)
    assert (spike["level"], spike["text"]) == ("warn", "step 3: the loss rose (loss 2.500)")
    assert (note["level"], note["text"]) == ("info", "step 3: the training ends early")


async def test_steps_and_lines_of_a_variant_say_whose_they_are(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    await training.handle(replace(STEP, variant=1))
    await training.handle(Noted(step=2, message="it is left out", variant=1))
    reader = await there.log.reader(TELEMETRY.name, {partition_of(b"job1"): 0})
    step, note = [msgspec.json.decode(record.value) for record in await reader.poll(10, 100)]
    await reader.close()
    assert (step["step"], step["variant"]) == (3, 1)
    assert note["text"] == "variant 1, step 2: it is left out"


async def test_what_a_training_reports_is_in_the_metrics_until_its_end(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    meter, began_s = training.tools.meter, there.clock.now_ms() / 1_000

    def figures() -> dict[str, float]:
        return {figure.metric.name: figure.value for figure in meter.figures()}

    assert figures() == {"tunery_trainings_running": 0}
    await training.handle(STARTED)
    await there.clock.sleep(2_000)
    await training.handle(STEP)
    await training.handle(LossSpiked(step=3, loss=9.0, message="high"))
    expected = {
        "tunery_trainings_running": 1,
        "tunery_training_last_step_timestamp_seconds": began_s + 2,
        "tunery_training_last_checkpoint_timestamp_seconds": began_s,
    }
    assert figures() == expected
    await training.handle(checkpointed(tmp_path, 5))
    assert figures()["tunery_training_last_checkpoint_timestamp_seconds"] >= began_s + 2
    await training.close()
    assert figures() == {"tunery_trainings_running": 0}


async def test_the_adapter_of_a_finished_process_is_stored(tmp_path: Path) -> None:
    training, there = await under_lease(MemoryBlobs(), tmp_path)
    with pytest.raises(FileNotFoundError, match="wrote no adapter"):
        await training.result()
    (tmp_path / "adapter.safetensors").write_bytes(CONTENT)
    digest = sha256(CONTENT).hexdigest()
    file = FileDigest(name="adapter.safetensors", sha256=digest, bytes=len(CONTENT))
    await training.handle(
        Finished(
            adapter_dir=str(tmp_path),
            adapter_sha256=digest,
            config_sha256="c" * 64,
            files=(file,),
            steps=9,
            tokens=90,
            final_loss=1.2345678,
            variant=1,
            valid_losses=(None, 0.5),
        )
    )
    result = await training.result()
    assert (result.steps, result.tokens, result.final_loss_ppm) == (9, 90, 1_234_568)
    assert (result.variant, result.losses_ppm) == (1, (None, 500_000))
    (stored,) = result.adapter
    assert await there.blobs.get(stored.blob, sha256=digest) == CONTENT


async def test_training_on_fetches_the_adapter_it_begins_with(tmp_path: Path) -> None:
    """A version that was deleted meanwhile is the user's to replace: nothing is tried again."""
    blobs = MemoryBlobs()
    program, _ = await under_lease(blobs, tmp_path)
    digest = sha256(CONTENT).hexdigest()
    file = training.BlobFile(
        name="adapter_model.safetensors", blob="t/acme/w", sha256=digest, bytes=len(CONTENT)
    )
    start = training.AdapterStart(model_id="ft:b:acme::1", sha256=digest, files=(file,))
    program._work = replace(WORK, start=start)
    await blobs.put(WORK.prepared.train_blob, CONTENT, sha256=digest)
    with pytest.raises(WorkError, match="ft:b:acme::1, which") as caught:
        await program.write_inputs(tmp_path)
    assert caught.value.cause == "user"
    (tmp_path / "start").rmdir()
    await blobs.put("t/acme/w", CONTENT, sha256=digest)
    spec = await program.write_inputs(tmp_path)
    assert isinstance(spec, TrainSpec)
    assert spec.start is not None
    assert (spec.start.name, spec.start.sha256) == ("ft:b:acme::1", digest)
    assert (Path(spec.start.dir) / file.name).read_bytes() == CONTENT
    outside = replace(start, files=(replace(file, name="../outside"),))
    program._work = replace(WORK, start=outside)
    shutil.rmtree(tmp_path / "start")
    with pytest.raises(NotTaken):
        await program.write_inputs(tmp_path)


async def test_what_the_process_has_done_are_spans_of_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training_program, _ = await under_lease(MemoryBlobs(), tmp_path)
    monkeypatch.setattr(training_program, "_now_ms", SystemClock().now_ms)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    with receiving_spans() as receiver:
        monkeypatch.setenv(ENDPOINTS[0], receiver.endpoint)
        start_traces("trainer")
        with trail_context(Trail("req_1", f"00-{trace}-00f067aa0ba902b7-01")):
            await training_program.handle(replace(STARTED, elapsed_ms=2_000))
            await training_program.handle(
                Finished(
                    elapsed_ms=3_000,
                    adapter_dir=str(tmp_path),
                    adapter_sha256=SHA,
                    config_sha256=SHA,
                    files=(),
                    steps=9,
                    tokens=90,
                    final_loss=None,
                )
            )
        stop_traces()
    loaded, trained = receiver.of(trace)
    assert (loaded.name, round(loaded.seconds)) == ("start training", 2)
    assert (trained.name, trained.attributes["tunery.steps"]) == ("train", 9)


async def test_bases_f7_a_training_gets_the_tokenizer_of_its_job(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    await blobs.put(WORK.prepared.train_blob, CONTENT)
    program, servers = await under_lease(blobs, tmp_path)
    plain = await program.write_inputs(tmp_path)
    assert isinstance(plain, TrainSpec)
    assert plain.tokenizer_dir is None
    seal = servers.runtime("gateway").seal
    tenant, base = program.grant.tenant, make_base(tmp_path / "base")
    chat = ChatFormat(
        sha256=SHA,
        template=seal.seal(tenant, TEMPLATE + "{# own #}", "chat_template"),
        eot_tokens=seal.seal(tenant, '["<|im_start|>"]', "eot_tokens"),
    )
    program._work = replace(program._work, base_path=str(base), chat=chat)
    spec = await program.write_inputs(tmp_path)
    assert isinstance(spec, TrainSpec)
    assert spec.base_dir == str(base)
    own = Path(spec.tokenizer_dir or "")
    assert (own / "chat_template.jinja").read_text() == TEMPLATE + "{# own #}"
    assert json.loads((own / "generation_config.json").read_bytes()) == {"eos_token_id": [1, 2]}
    unknown = seal.seal(tenant, '["<|eot|>"]', "eot_tokens")
    program._work = replace(program._work, chat=replace(chat, eot_tokens=unknown))
    (tmp_path / "second").mkdir()
    with pytest.raises(WorkError, match="is no special token of this base model"):
        await program.write_inputs(tmp_path / "second")

"""Trainings of several ranks on processors: the same losses, one end for all, exact resumes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.training import Adaptation, MethodName
from services.trainer.adapters.processes import ProcessGroups, Walls
from services.trainer.effect.environment import environment_on
from services.trainer.ports import Access
from tests.unit.tunery.ml.optimizers import with_ranks
from tests.unit.tunery.ml.rank_trainings import StopAfter, go_ranks
from tests.unit.tunery.ml.trainings import Event, figures, of, resumed
from tests.unit.tunery.ranks.carriers import two_machines
from tunery.confinement.confined import Confinement
from tunery.ml.trained import weights_file
from tunery.ranks.joining import RANK_MODULE, VISIBLE, joined
from tunery.work.codec import encode_spec
from tunery.work.exits import ExitCode, WorkError
from tunery.work.spec import Precision, TrainSpec

pytestmark = pytest.mark.train


@pytest.fixture
def ranks_spec(
    spec: TrainSpec,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> TrainSpec:
    """Four micro-batches a step, of rows of different lengths; the last step of an epoch has two.

    Its dropout draws random numbers.
    """
    rows = [row[: 1 + number % 3] for number, row in enumerate(documents(10, 3))]
    hyper = replace(spec.hyper, accumulation=4, dropout=0.2)
    return replace(spec, train_shards=(str(make_shard(rows, "ten")),), hyper=hyper, ranks=2)


def are_close(ours: list[Event], theirs: list[Event]) -> bool:
    return figures(ours) == [pytest.approx(each, abs=1e-5) for each in figures(theirs)]


def start(spec: TrainSpec, path: Path) -> subprocess.Popen[bytes]:
    path.write_bytes(encode_spec(spec))
    command = [sys.executable, "-m", "tunery.ml.train", str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def read_until(process: subprocess.Popen[bytes], kind: str) -> list[Event]:
    """Events up to the first of a kind, or all."""
    events: list[Event] = []
    for line in process.stdout or ():
        events.append(json.loads(line))
        if events[-1]["type"] == kind:
            break
    return events


def process_of_rank(parent: int, number: int) -> int:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in children}
    # after the spec; the descriptors and an empty word follow
    return next(int(pid) for pid, words in commands.items() if words[4] == str(number).encode())


def test_ranks_have_the_losses_of_one_process(ranks_spec: TrainSpec) -> None:
    """Rows have other numbers of labels, and the last step of an epoch leaves ranks without rows.

    One process then goes on where two ranks were: with the same rows.
    """
    hyper = replace(ranks_spec.hyper, dropout=0.0)  # one process draws other random numbers
    plain = replace(ranks_spec, hyper=hyper)
    alone = replace(plain, ranks=1)
    _, (single,) = go_ranks(resumed(alone, out="single"))
    steps = of(single, "step")
    assert len(steps) == 6
    kept: list[Event] = []
    for count in (4, 2):
        codes, events = go_ranks(resumed(replace(plain, ranks=count), out=f"of-{count}"))
        assert codes == [ExitCode.FINISHED] * count
        for ours in events:
            assert are_close(of(ours, "step"), steps)
        for name in ("mean_token_accuracy", "tokens", "learning_rate"):
            theirs = [step[name] for step in steps]
            assert [step[name] for step in of(events[0], "step")] == pytest.approx(theirs)
        busy = [[ms > 0 for ms in step["rank_ms"]] for step in of(events[0], "step")]
        assert busy == [[True] * count, [True] * count, [at < 2 for at in range(count)]] * 2
        valid = [event["valid_loss"] for event in of(single, "eval")]
        assert [event["valid_loss"] for event in of(events[0], "eval")] == pytest.approx(valid)
        kept = of(events[0], "checkpoint")
        assert [len(of(ours, "checkpoint")) for ours in events] == [6] + [0] * (count - 1)
        assert [len(of(ours, "finished")) for ours in events] == [1] + [0] * (count - 1)

    manifest = json.loads(Path(kept[1]["dir"], "MANIFEST.json").read_text())
    assert manifest["environment"]["ranks"] == "2"
    _, (rest,) = go_ranks(resumed(alone, kept[1], out="rest"))
    assert rest[0]["resumed_from_step"] == 2
    assert rest[0]["environment_changes"] == [["ranks", "2", ""]]
    assert are_close(of(rest, "step"), steps[2:])
    # with fewer rows in a step it would see them in other steps
    other = replace(alone, hyper=replace(hyper, accumulation=2))
    _, (refused,) = go_ranks(resumed(other, kept[1], out="other"), {0: StopAfter(1)})
    assert refused[0]["resumed_from_step"] == 0
    assert "it belongs to another run: hyper was" in refused[0]["skipped"][0]["reason"]


def test_ranks_of_two_machines_train_to_the_bytes_of_those_of_one(ranks_spec: TrainSpec) -> None:
    """Two on each. They are stopped, and go on where all are on one machine."""
    spec = replace(ranks_spec, ranks=4)
    _, here = go_ranks(resumed(spec, out="here"))
    with two_machines(4) as join:
        codes, apart = go_ranks(resumed(spec, out="apart"), join=join)
    assert codes == [ExitCode.FINISHED] * 4
    assert figures(of(apart[0], "step")) == figures(of(here[0], "step"))
    assert apart[0][-1]["adapter_sha256"] == here[0][-1]["adapter_sha256"]
    with two_machines(4) as join:
        codes, stopped = go_ranks(resumed(spec, out="cut"), {3: StopAfter(2)}, join=join)
    assert codes == [ExitCode.PREEMPTED] * 4, "at one step"
    assert [ours[-1]["step"] for ours in stopped] == [2] * 4
    kept = of(stopped[0], "checkpoint")[-1]
    _, rest = go_ranks(resumed(spec, kept, out="rest"))
    assert rest[0][0]["environment_changes"] == []
    assert rest[0][-1]["adapter_sha256"] == here[0][-1]["adapter_sha256"]


def test_ranks_stop_after_one_step_and_resume_to_the_same_bytes(
    ranks_spec: TrainSpec, tmp_path: Path
) -> None:
    """One of them is asked to stop; in the next attempt, of processes as the agent starts them, one
    is killed; the last comes to the end. There is dropout.
    """
    spec = replace(ranks_spec, hyper=replace(ranks_spec.hyper, n_epochs=6))
    _, whole = go_ranks(resumed(spec, out="whole"))
    assert whole[0][-1]["steps"] == 18
    codes, events = go_ranks(resumed(spec, out="stopped"), {1: StopAfter(2)})
    assert codes == [ExitCode.PREEMPTED] * 2
    assert [ours[-1]["step"] for ours in events] == [2, 2]
    stopped = of(events[0], "checkpoint")[-1]
    assert events[0][-1]["checkpoint"] == stopped["dir"]

    with start(resumed(spec, stopped, out="killed"), tmp_path / "spec.json") as process:
        first = read_until(process, "step")
        pids = [process_of_rank(process.pid, number) for number in (0, 1)]
        began_s = time.monotonic()
        os.kill(pids[1], signal.SIGKILL)
        killed = first + read_until(process, "failed")
        assert process.wait(timeout=60) == ExitCode.PLATFORM
        assert time.monotonic() - began_s < 30, "the others do not wait for what does not come"
    assert not Path(f"/proc/{pids[0]}").exists()
    assert of(killed, "started")[0]["resumed_from_step"] == 2
    assert killed[-1]["cause"] == "platform"
    assert f"rank 1 of 2 (process {pids[1]}) was killed by SIGKILL" in killed[-1]["message"]

    kept = [stopped, *of(killed, "checkpoint")]
    begins = kept[-1]["step"]
    codes, events = go_ranks(resumed(spec, kept[-1], out="again"))
    assert (codes, events[0][0]["environment_changes"]) == ([ExitCode.FINISHED] * 2, [])
    assert events[0][0]["resumed_from_step"] == begins
    assert figures(of(events[0], "step")) == figures(of(whole[0], "step"))[begins:]
    assert events[0][-1]["adapter_sha256"] == whole[0][-1]["adapter_sha256"]
    manifests = {event["step"]: event["manifest_sha256"] for event in of(whole[0], "checkpoint")}
    for checkpoint in (*kept, *of(events[0], "checkpoint")):
        assert checkpoint["manifest_sha256"] == manifests[checkpoint["step"]]


@pytest.mark.soak  # a stack pauses other trainings; what signals do to ranks has its own tests
async def test_confined_ranks_of_an_agent_stop_after_one_step_at_its_signal(
    ranks_spec: TrainSpec, tmp_path: Path
) -> None:
    """It signals all of them; whoever hears it first, they stop together."""
    spec = replace(ranks_spec, hyper=replace(ranks_spec.hyper, n_epochs=10))
    (tmp_path / "spec.json").write_bytes(encode_spec(spec))
    argv = (sys.executable, "-m", RANK_MODULE, str(tmp_path / "spec.json"))
    access = Access(read=(Path(spec.base_dir),), ranks=2)
    launcher = ProcessGroups("ranks", Walls(Confinement("prefer")))
    group = await launcher.start(argv, environment_on(()), tmp_path, access)
    events: list[Event] = []
    async for line in group.lines():
        events.append(json.loads(line))
        if events[-1]["type"] == "step" and events[-1]["step"] == 1:
            group.signal(signal.SIGTERM)
    assert await group.wait() == ExitCode.PREEMPTED, group.error_tail()
    last = of(events, "checkpoint")[-1]
    assert events[-1]["checkpoint"] == last["dir"]
    assert of(events, "step")[-1]["step"] == last["step"] < 30


@pytest.mark.gpu
def test_ranks_on_gpus_have_the_losses_of_one_and_the_same_bytes_again(
    ranks_spec: TrainSpec, tmp_path: Path
) -> None:
    """Processes as somebody starts them by hand; each computes on a device of its own."""
    import torch

    from tunery.ml.device import uuid_of

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    names = tuple(uuid_of(torch.device("cuda", number)) for number in range(2))
    hyper = replace(ranks_spec.hyper, dropout=0.0)
    spec = replace(ranks_spec, hyper=hyper, threads=None)
    whole: dict[str, list[Event]] = {}
    attempts = {"one": "fp32", "two": "fp32", "bytes": "bf16", "bytes again": "bf16"}
    for out, precision in attempts.items():
        devices = names[: 1 if out == "one" else 2]
        own = replace(resumed(spec, out=out), devices=devices, ranks=len(devices))
        own = replace(own, precision=precision)
        (tmp_path / f"{out}.json").write_bytes(encode_spec(own))
        done = subprocess.run(
            [sys.executable, "-m", "tunery.ml.train", str(tmp_path / f"{out}.json")],
            env={**os.environ, VISIBLE: ",".join(devices)},
            stdout=subprocess.PIPE,
            check=True,
        )
        whole[out] = [json.loads(line) for line in done.stdout.splitlines()]
    assert are_close(of(whole["two"], "step"), of(whole["one"], "step"))
    assert whole["bytes"][-1]["adapter_sha256"] == whole["bytes again"][-1]["adapter_sha256"]


def test_ranks_whose_device_is_not_there_do_not_begin(
    ranks_spec: TrainSpec, tmp_path: Path
) -> None:
    """Each rank checks it by itself; the agent is told which one, and that the node is at fault."""
    spec = replace(ranks_spec, accelerators=1, devices=("GPU-none-0", "GPU-none-1"))
    with start(spec, tmp_path / "spec.json") as process:
        (failed,) = read_until(process, "failed")
        assert process.wait(timeout=60) == ExitCode.BAD_NODE
    assert failed["cause"] == "bad_node"
    assert re.match(r"rank [01] of 2 on GPU-none-[01]: the lease has 1 acc", failed["message"])


def test_each_rank_adds_what_all_have_of_its_share_in_their_order() -> None:
    """In pieces: some weights are larger than what is gathered at once."""
    import torch

    from tunery.ml.ranks import Ranks

    sizes, owners = [(3,), (4, 5), (2, 2), (7,), (1,)], [2, 0, 1, 1, 2]

    def be_rank(ranks: Ranks) -> list[set[float]]:
        gradients = [torch.full(size, 10.0**ranks.number) for size in sizes]
        ranks.add_to_owners(gradients, owners)
        assert ranks.add([ranks.number, 1.0]) == [3.0, 3.0]
        assert (ranks.any(ranks.number == 2), ranks.any(False)) == (True, False)
        assert ranks.any_of_each([ranks.number == 1, False]) == [True, False]
        assert ranks.of_first(ranks.number + 5.0) == 5.0
        ranks.check_same("data", b"alike")
        with pytest.raises(WorkError, match="rank 2 of 3 has other data than rank 0"):
            ranks.check_same("data", b"other" if ranks.number == 2 else b"alike")
        return [set(gradient.flatten().tolist()) for gradient in gradients]

    for number, values in enumerate(with_ranks(3, be_rank, part_bytes=40)):
        own = [10.0**number]
        assert values == [{111.0} if owner == number else set(own) for owner in owners]


def test_gradients_are_added_to_a_sum_one_after_the_other_by_ranks_that_have_some() -> None:
    """In an order in which the bits show it; a rank without any owns some all the same."""
    import torch

    from tunery.ml.ranks import Ranks

    sizes, owners = [(40,), (5,), (6,)], [2, 0, 1]
    values, begins = [1e8, 3.0, 0.1], 7e-3

    def be_rank(ranks: Ranks) -> list[list[float]]:
        gradients = [torch.full(size, values[ranks.number]) for size in sizes]
        totals = {at: torch.full(sizes[at], begins) for at in (0, 1) if owners[at] == ranks.number}
        ranks.add_to_owners(gradients, owners, totals, givers=2)
        kept = [totals.get(at, gradient) for at, gradient in enumerate(gradients)]
        return [kept[at].tolist() for at, owner in enumerate(owners) if owner == ranks.number]

    onto = float(torch.tensor(begins) + 1e8 + 3.0)
    anew = float(torch.tensor(1e8) + 3.0)
    sums = with_ranks(3, be_rank, part_bytes=96)
    assert sums == [[[onto] * 5], [[anew] * 6], [[onto] * 40]]
    assert [Ranks().givers(0, 1), Ranks().givers(3, 4)] == [1, 1]


def test_every_rank_is_told_what_each_has() -> None:
    """Of one tensor only a part at once; a rank that has nothing tells nothing."""
    import torch

    from tunery.ml.ranks import Ranks

    sizes, owners = [5, 90, 0, 31], [1, 2, 0, 1]

    def be_rank(ranks: Ranks) -> list[list[int]]:
        content = [
            torch.full((size,), number, dtype=torch.uint8) for number, size in enumerate(sizes)
        ]
        own = {at: content[at] for at, owner in enumerate(owners) if owner == ranks.number}
        received = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
        for at, part, piece in ranks.tell(own, sizes, owners):
            received[at][part].copy_(piece)
        pieces = ranks.tell(own, sizes, owners, first_only=True)
        assert sum(len(piece) for *_, piece in pieces) == (sum(sizes) if ranks.is_first else 0)
        assert list(ranks.tell({}, [], [])) == []
        return [tensor.tolist() for tensor in received]

    expected = [[number] * size for number, size in enumerate(sizes)]
    assert with_ranks(3, be_rank, part_bytes=24) == [expected] * 3


@pytest.mark.parametrize(
    ("count", "precision", "changes"),
    [
        (4, "fp32", {}),
        (4, "bf16", {"lora_plus": 16.0}),
        (4, "fp32", {"adaptation": "full", "weight_decay": 0.1}),
        (4, "bf16", {"adaptation": "full", "weight_decay": 0.1}),
        (2, "fp32", {"lora_plus": 16.0}),
        (2, "bf16", {"adaptation": "full"}),
        (2, "fp32", {"adaptation": "qlora", "recompute": True}),
    ],
)
def test_ranks_with_shares_train_to_the_bytes_of_one_process(
    ranks_spec: TrainSpec, count: int, precision: Precision, changes: dict[str, Any]
) -> None:
    """One micro-batch each: a process that has all of them adds them in the same order. It has the
    gradients, the optimizer, the checkpoints and the weights of ranks that had no shares.
    """
    hyper = replace(ranks_spec.hyper, accumulation=count, dropout=0.0, n_epochs=1, **changes)
    spec = replace(ranks_spec, hyper=hyper, precision=precision)
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1), out="alone"))
    codes, ranks = go_ranks(resumed(replace(spec, ranks=count), out="ranks"))
    assert codes == [ExitCode.FINISHED] * count
    assert ranks[0][-1]["adapter_sha256"] == alone[-1]["adapter_sha256"]
    norms = [[step["grad_norm"] for step in of(each, "step")] for each in (alone, ranks[0])]
    assert norms[0] == norms[1]
    kept = [of(each, "checkpoint") for each in (alone, ranks[0])]
    assert len(kept[0]) == len(kept[1]) > 2
    for ours, theirs in zip(*kept, strict=True):
        files = [
            {file["name"]: file["sha256"] for file in each["files"]} for each in (ours, theirs)
        ]
        assert files[0].keys() == files[1].keys()
        for name in ("optimizer.safetensors", weights_file(hyper.adaptation)):
            assert files[0][name] == files[1][name]


def assert_trained_as_alone(spec: TrainSpec, *names: str) -> Event:
    """Assert that two ranks end with the bytes of one process, and its losses and figures.

    Returns how the one ended.
    """
    _, (alone,) = go_ranks(resumed(replace(spec, ranks=1), out="alone"))
    codes, ranks = go_ranks(resumed(replace(spec, ranks=2), out="ranks"))
    assert codes == [ExitCode.FINISHED] * 2
    assert are_close(of(ranks[0], "step"), of(alone, "step"))
    for ours, theirs in zip(of(ranks[0], "step"), of(alone, "step"), strict=True):
        for name in names:
            assert ours[name] == pytest.approx(theirs[name], abs=1e-4), name
    assert ranks[0][-1]["adapter_sha256"] == alone[-1]["adapter_sha256"]
    return alone[-1]


@pytest.mark.parametrize("method", ["dpo", "orpo", "reward"])
def test_ranks_learn_from_pairs_with_the_losses_of_one_process(
    pairs_spec: TrainSpec, method: MethodName
) -> None:
    """Log-probabilities under the base are computed once, by one rank each, and told."""
    spec = replace(pairs_spec, hyper=replace(pairs_spec.hyper, method=method, n_epochs=1))
    names = ("reward_accuracy", "reward_margin", "reward_chosen", "mean_token_accuracy")
    assert_trained_as_alone(spec, *names)


def test_ranks_write_and_grade_the_answers_of_one_process(prompts_spec: TrainSpec) -> None:
    """Each the answers to its prompts; also after a stop, which is the same step in all."""
    names = ("reward", "reward_std", "completion_tokens")
    alone = assert_trained_as_alone(prompts_spec, *names)
    spec = replace(prompts_spec, ranks=2)
    codes, stopped = go_ranks(resumed(spec, out="stopped"), {1: StopAfter(2)})
    assert codes == [ExitCode.PREEMPTED] * 2
    codes, again = go_ranks(resumed(spec, of(stopped[0], "checkpoint")[-1], out="again"))
    assert codes == [ExitCode.FINISHED] * 2
    assert again[0][-1]["adapter_sha256"] == alone["adapter_sha256"]


def test_ranks_learn_from_labels_with_the_losses_of_one_process(labels_spec: TrainSpec) -> None:
    """Answers are compared within their packed row, also with those of others."""
    names = ("reward_accuracy", "reward_margin", "reward_chosen", "reward_rejected")
    assert_trained_as_alone(labels_spec, *names)


class KillAfter(StopAfter):
    """Kills the process, once it has told some pieces of what it has for a checkpoint.

    Asked once before the first step, and once after each.
    """

    def __init__(self, steps: int, pieces: int) -> None:
        super().__init__(steps)
        self.pieces = pieces

    def __call__(self) -> bool:
        from tunery.ml.adamw import AdapterAdamW
        from tunery.ml.exchange import Exchange

        give, meet = AdapterAdamW.give, Exchange.meet

        def kill_or_meet(*args: Any) -> Any:
            self.pieces -= 1
            if self.pieces < -1:  # before the pieces ranks say what there is
                os.kill(os.getpid(), signal.SIGKILL)
            return meet(*args)

        def give_some(adamw: AdapterAdamW) -> None:
            Exchange.meet = kill_or_meet  # type: ignore[method-assign, assignment]  # in a child
            give(adamw)

        if super().__call__():
            AdapterAdamW.give = give_some  # type: ignore[method-assign, assignment]  # in a child
        return False


@pytest.mark.parametrize("adaptation", ["lora", "full"])
def test_a_rank_that_is_killed_while_it_tells_its_share_leaves_no_half_checkpoint(
    ranks_spec: TrainSpec, adaptation: Adaptation
) -> None:
    """The last whole one is gone on from: by as many ranks to the byte, and by twice as many."""
    hyper = replace(ranks_spec.hyper, adaptation=adaptation, n_epochs=1)
    spec, small = replace(ranks_spec, hyper=hyper), partial(joined, part_bytes=1 << 14)
    _, whole = go_ranks(resumed(spec, out="whole"))
    codes, killed = go_ranks(resumed(spec, out="killed"), {1: KillAfter(3, 2)}, join=small)
    assert codes == [ExitCode.RANK_LOST, -signal.SIGKILL]
    assert [step["step"] for step in of(killed[0], "step")][-1] == 3
    kept = of(killed[0], "checkpoint")
    assert [checkpoint["step"] for checkpoint in kept] == [1, 2]
    folder = Path(kept[-1]["dir"]).parent
    whole_ones = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert sorted(whole_ones) == ["step-00000001", "step-00000002"]
    codes, again = go_ranks(resumed(spec, kept[-1], out="again"))
    assert (codes, again[0][0]["resumed_from_step"]) == ([ExitCode.FINISHED] * 2, 2)
    assert again[0][-1]["adapter_sha256"] == whole[0][-1]["adapter_sha256"]
    codes, others = go_ranks(resumed(replace(spec, ranks=4), kept[-1], out="others"))
    assert codes == [ExitCode.FINISHED] * 4
    assert are_close(of(others[0], "step"), of(whole[0], "step")[2:])


def test_ranks_that_read_other_data_do_not_begin(
    ranks_spec: TrainSpec,
    make_shard: Callable[..., Path],
    documents: Callable[[int, int], list[list[list[int]]]],
) -> None:
    """As where one rank has another base, shard or library."""
    other = replace(ranks_spec, train_shards=(str(make_shard(documents(10, 2), "other")),))
    codes, events = go_ranks(ranks_spec, specs={1: other})
    assert codes == [ExitCode.PLATFORM] * 2
    for ours in events:
        assert [event["type"] for event in ours] == ["failed"]
        assert "rank 1 of 2 has other inputs or libraries than rank 0" in ours[0]["message"]

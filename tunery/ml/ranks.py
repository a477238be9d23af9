"""The ranks of a training: processes of one `torch.distributed` group.

A step sees the same rows in the same micro-batches with any number of ranks; rank r of n computes
the micro-batches r, r + n, … of it. Each divides by the items of the whole step, so that the sum of
all gradients is the gradient of the step.

Libraries that find RANK and WORLD_SIZE in their environment divide batches and wrap models by
themselves; `tunery.ml.loop` uses none of them, and only assigns micro-batches to ranks.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C import _distributed_c10d as recorder

from tunery.plan.engines import BACKENDS
from tunery.ranks.launching import RENDEZVOUS
from tunery.work.exits import WorkError

TIMEOUT: Final = timedelta(minutes=10)  # of a collective that a rank does not enter
# What gloo and the store say where a peer has closed its connection, or does not answer.
LOST: Final = ("connection closed", "connection reset", "broken pipe", "socket closed", "timed out")
PORT_TAKEN: Final = "EADDRINUSE"
FLIGHT_RECORDER: Final = "TORCH_FR_BUFFER_SIZE"  # of each rank: how many collectives it keeps
RECORDED: Final = "256"


class RankLost(Exception):
    """Another rank has ended, or does not answer."""


def is_lost(error: BaseException) -> bool:
    """Return whether an error of torch says that another rank is gone."""
    if isinstance(error, RankLost | dist.DistNetworkError | dist.DistBackendError):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in LOST)


def pending_collective() -> str:
    """The first collective that this rank has entered and not left; empty: there is none.

    Read from torch's flight recorder, whose public ways only write files as a process dies.
    """
    entries: list[dict[str, Any]] = []
    for backend in BACKENDS.values():
        dump = recorder._dump_fr_trace_json(True, True, backend)
        entries += json.loads(dump).get("entries", [])
    if not entries:
        return ""
    first = min(entries, key=lambda entry: int(entry["time_created_ns"]))
    sizes = " ".join(map(str, first["input_sizes"]))
    return f"{first['profiling_name']} {sizes}, number {first['collective_seq_id']} of its group"


class Ranks:
    """This process among the ranks of a training; without a group it is the only one.

    number: 0 is the first, which alone reports and writes
    count: how many ranks there are
    local_count: how many of them are on this node
    tensor_parallel: how many in a row compute each micro-batch together, to the same loss
    context_parallel: how many in a row compute a part of each micro-batch, and of its loss
    """

    def __init__(
        self,
        number: int = 0,
        count: int = 1,
        local_count: int = 1,
        tensor_parallel: int = 1,
        context_parallel: int = 1,
    ) -> None:
        self.number, self.count, self.local_count = number, count, local_count
        self.tensor_parallel, self.context_parallel = tensor_parallel, context_parallel
        # The ranks that have the other parts of this rank's rows; None: it has them whole.
        self.row: Any = (
            dist.new_subgroups(context_parallel, timeout=TIMEOUT)[0]
            if context_parallel > 1
            else None
        )
        # Facts of a few bytes are exchanged between processors: a device has no part in them.
        self._facts: Any = (
            dist.new_group(backend="gloo", timeout=TIMEOUT) if self.is_group else None
        )
        self.on_collective: Callable[[], None] = lambda: None

    @classmethod
    def join(
        cls,
        device: torch.device,
        count: int,
        tensor_parallel: int = 1,
        context_parallel: int = 1,
    ) -> "Ranks":
        """Meet the other ranks, as the environment says. Raises WorkError("platform"), RankLost."""
        environment = {name: int(os.environ.get(name, "-1")) for name in ("RANK", "WORLD_SIZE")}
        if environment["WORLD_SIZE"] != count:
            message = f"the spec has {count} ranks, and WORLD_SIZE is {environment['WORLD_SIZE']}"
            advice = f"Start it with torchrun --nproc-per-node {count} -m tunery.ml.train SPEC."
            raise WorkError("platform", message, advice)
        os.environ.setdefault(FLIGHT_RECORDER, RECORDED)
        meeting = os.environ.get(RENDEZVOUS, "env://")
        try:
            dist.init_process_group(
                # what is offloaded is added up by processors
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                init_method=meeting,
                rank=environment["RANK"],
                world_size=count,
                timeout=TIMEOUT,
            )
            local_count = int(os.environ.get("LOCAL_WORLD_SIZE", count))
            return cls(environment["RANK"], count, local_count, tensor_parallel, context_parallel)
        except (dist.DistError, RuntimeError, ValueError) as error:
            if PORT_TAKEN in str(error):  # only the first one listens; it is no other rank's fault
                message = f"rank 0 cannot listen at {meeting}: the port is taken"
                raise WorkError("platform", message, "Run it again: it takes another.") from error
            raise RankLost(f"the ranks did not meet: {error}") from error

    @property
    def is_group(self) -> bool:
        return dist.is_initialized()

    @property
    def is_first(self) -> bool:
        return self.number == 0

    @property
    def groups(self) -> int:
        """How many micro-batches are computed at a time."""
        return self.count // (self.tensor_parallel * self.context_parallel)

    @property
    def group(self) -> int:
        """Number of the group, from 0, that computes the micro-batches of this rank."""
        return self.number // (self.tensor_parallel * self.context_parallel)

    def takes(self, micro_batch: int) -> bool:
        """Return whether this rank computes a micro-batch of a step, counted from 0."""
        return micro_batch % self.groups == self.group

    def environment(self) -> dict[str, str]:
        """Facts that must be equal for a resume to be equal to the bit."""
        return {"ranks": str(self.count)} if self.count > 1 else {}

    def seed(self, seed: int, step: int, micro_batch: int) -> None:
        """Begin the random numbers of a micro-batch: they do not depend on which rank draws them.

        A process that trains alone draws all from one stream instead, as it always has.
        """
        if self.count > 1:
            part = self.number % self.context_parallel
            of_part = f":{part}" if part else ""
            facts = f"{seed}:{step}:{micro_batch}{of_part}".encode()
            torch.manual_seed(int.from_bytes(blake2b(facts, digest_size=7).digest(), "big"))

    def sum_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients (fp32, of equal shapes in all ranks) by their sums over ranks.

        One all-reduce of all of them: adapters are small. All ranks get the same bytes.
        """
        if self.count == 1 or not gradients:
            return
        self.on_collective()
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def each(self, values: Sequence[float]) -> list[list[float]]:
        """The values of each rank, in their order."""
        if self.count == 1:
            return [list(values)]
        self.on_collective()
        own = torch.tensor(values, dtype=torch.float64)
        gathered = [torch.empty_like(own) for _ in range(self.count)]
        dist.all_gather(gathered, own, group=self._facts)
        return [each.tolist() for each in gathered]

    def add(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all ranks."""
        return [sum(of_ranks) for of_ranks in zip(*self.each(values), strict=True)]

    def add_groups(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all groups, whose ranks have equal ones."""
        of_groups = self.each(values)[:: self.tensor_parallel]
        return [sum(each) for each in zip(*of_groups, strict=True)]

    def any(self, is_so: bool) -> bool:
        """Return whether a fact is true in any rank. A collective: all ranks get one result."""
        return self.any_of_each([is_so])[0]

    def any_of_each(self, are_so: Sequence[bool]) -> list[bool]:
        """Return for each fact whether it is true in any rank. A collective."""
        return [total > 0 for total in self.add(list(map(float, are_so)))]

    def most(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        return int(max(self.each([number]))[0])

    def of_first(self, value: float) -> float:
        """The value that the first rank has."""
        return self.each([value])[0][0]

    def check_same(self, what: str, digest: bytes) -> None:
        """Raises WorkError("platform") where a rank has another digest than the first."""
        digests = self.each(list(map(float, digest)))
        others = [number for number, other in enumerate(digests) if other != digests[0]]
        if others:
            message = f"rank {others[0]} of {self.count} has other {what} than rank 0"
            advice = "Run all ranks with the same files and libraries on processors of one kind."
            raise WorkError("platform", message, advice, rank=others[0])


ALONE: Final = Ranks()


def digest_of(tensors: Mapping[str, Tensor]) -> bytes:
    """A hash of names and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].contiguous().cpu().view(-1).view(torch.uint8).numpy().data)
    return digest.digest()

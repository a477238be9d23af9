"""What the ranks of a training do together: each computes a part of every step.

A step sees the same rows in the same micro-batches as with one rank; rank r of n computes the
micro-batches r, r + n, … of it. Each divides by the items of the whole step, so that the sum of
all gradients is the gradient of the step. They are gathered and added in the order of the ranks,
once a step, and every rank then takes the same step of its optimizer. torch's
DistributedDataParallel would add them in an order that its buckets and the transport choose, and
would know nothing of the masters in fp32.

The processes are joined by gloo in a group of their own. It is not torch's default group: libraries
that see one divide batches and wrap models by themselves.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import reduce
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from tunery.work.exits import WorkError

RENDEZVOUS: Final = "rendezvous"
# The others wait while the first answers prompts; the node agent ends processes that are silent.
WAIT_MAX: Final = timedelta(hours=1)
PART_ELEMENTS: Final = 2**23  # of gradients that are gathered at once: 32 MiB from each rank


class RankLost(Exception):
    """Another rank does not answer: it has ended, or is being ended."""


class Ranks:
    """This process among the ranks of a training; without a group it is the only one.

    number: 0 is the first, which alone reports and writes
    count: how many ranks there are
    """

    def __init__(self, number: int = 0, count: int = 1, group: Any = None) -> None:
        self.number, self.count, self._group = number, count, group

    @classmethod
    def meet(cls, number: int, count: int, folder: Path) -> "Ranks":
        """Join the others, which name the same folder. It is used once, and empty before.

        Raises RankLost when they do not come.
        """
        try:
            store = dist.FileStore(str(folder / RENDEZVOUS), count)  # type: ignore[attr-defined]  # torch
            group = dist.ProcessGroupGloo(store, number, count, WAIT_MAX)
        except RuntimeError as error:
            raise RankLost(str(error)) from error
        return cls(number, count, group)

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def takes(self, micro_batch: int) -> bool:
        """Whether this rank computes a micro-batch of a step, counted from 0."""
        return micro_batch % self.count == self.number

    def environment(self) -> dict[str, str]:
        """What a resume must have in common to be equal to the bit."""
        return {"ranks": str(self.count)} if self.count > 1 else {}

    def seed(self, seed: int, step: int, micro_batch: int) -> None:
        """Begin the random numbers of a micro-batch: they do not depend on which rank draws them.

        A process that trains alone draws all from one stream instead, as it always has.
        """
        if self.count > 1:
            facts = f"{seed}:{step}:{micro_batch}".encode()
            torch.manual_seed(int.from_bytes(blake2b(facts, digest_size=7).digest(), "big"))

    def add_gradients(self, weights: Iterable[Tensor]) -> None:
        """Give each weight the sum of its gradients in all ranks, in fp32 as the masters are.

        A weight without a gradient in any rank stays without. Raises RankLost.
        """
        if self.count == 1:
            return
        every = list(weights)
        has_gradient = torch.tensor(
            [weight.grad is not None for weight in every], dtype=torch.uint8
        )
        wanted = reduce(torch.maximum, self._gather(has_gradient)).tolist()
        for part in _parts(
            weight for weight, is_wanted in zip(every, wanted, strict=True) if is_wanted
        ):
            gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in part]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            for begin in range(0, len(flat), PART_ELEMENTS):
                piece = flat[begin : begin + PART_ELEMENTS]
                piece.copy_(reduce(torch.add, self._gather(piece)))
            begin = 0
            for weight in part:
                weight.grad = flat[begin : begin + weight.numel()].view_as(weight)
                begin += weight.numel()

    def add(self, values: Sequence[float]) -> list[float]:
        """The sum of each value over all ranks. Raises RankLost."""
        if self.count == 1:
            return list(values)
        gathered = self._gather(torch.tensor(values, dtype=torch.float64))
        sums: list[float] = reduce(torch.add, gathered).tolist()
        return sums

    def any(self, is_so: bool) -> bool:
        """Whether it is so in any rank: all get the same answer. Raises RankLost."""
        return is_so if self.count == 1 else self.add([float(is_so)])[0] > 0

    def of_first(self, value: float) -> float:
        """The value that the first rank has. Raises RankLost."""
        return self.add([value if self.is_first else 0.0])[0]

    def check_same(self, what: str, digest: bytes) -> None:
        """Raises WorkError("platform") where a rank has another digest; RankLost."""
        if self.count == 1:
            return
        digests = self._gather(torch.tensor(list(digest), dtype=torch.uint8))
        others = [number for number, other in enumerate(digests) if not other.equal(digests[0])]
        if others:
            message = f"rank {others[0]} of {self.count} has other {what} than rank 0"
            advice = "Run all ranks with the same files and libraries on processors of one kind."
            raise WorkError("platform", message, advice)

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """What each rank has, in their order."""
        gathered = [torch.empty_like(tensor) for _ in range(self.count)]
        try:
            self._group.allgather([gathered], [tensor]).wait()
        except RuntimeError as error:
            raise RankLost(str(error)) from error
        return gathered


ALONE: Final = Ranks()


def digest_of(tensors: Mapping[str, Tensor]) -> bytes:
    """A hash of names and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name].detach().contiguous().cpu()
        digest.update(name.encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _parts(weights: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Weights in their order, so many at a time that gradients of a part are gathered at once."""
    part: list[Tensor] = []
    for weight in weights:
        if part and sum(other.numel() for other in part) + weight.numel() > PART_ELEMENTS:
            yield part
            part = []
        part.append(weight)
    if part:
        yield part

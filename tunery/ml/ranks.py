"""What the ranks of a training do together: each computes a part of every step.

A step sees the same rows in the same micro-batches as with one rank; rank r of n computes the
micro-batches r, r + n, … of it. Each divides by the items of the whole step, so that the sum of
all gradients is the gradient of the step. They are gathered and added in the order of the ranks,
once a step, and every rank then takes the same step of its optimizer. torch's
DistributedDataParallel would add them in an order that its buckets and the transport choose, and
would know nothing of the masters in fp32.

They are no group of torch's: libraries that see one divide batches and wrap models by themselves.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from typing import Final

import torch
from torch import Tensor

from tunery.ml.exchange import Exchange
from tunery.work.exits import WorkError


class Ranks:
    """This process among the ranks of a training; without an exchange it is the only one.

    number: 0 is the first, which alone reports and writes
    count: how many ranks there are
    """

    def __init__(self, exchange: Exchange | None = None) -> None:
        self._exchange = exchange
        self.number = 0 if exchange is None else exchange.number
        self.count = 1 if exchange is None else exchange.count
        self._staging = torch.empty(0)

    def on_wait(self, tell: Callable[[int], None]) -> None:
        """Call `tell` with the number of a rank that has been waited for for long."""
        if self._exchange is not None:
            self._exchange.on_wait = tell

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
        most = self._part_bytes // torch.float32.itemsize
        summed = (weight for weight, is_so in zip(every, wanted, strict=True) if is_so)
        for part in _parts(summed, most):
            gradients = [torch.zeros_like(w) if w.grad is None else w.grad for w in part]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            for begin in range(0, len(flat), most):
                self._add_up(flat[begin : begin + most])
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

    def each(self, value: float) -> list[float]:
        """The value of each rank. Raises RankLost."""
        return [float(each) for each in self._gather(torch.tensor(value, dtype=torch.float64))]

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
            raise WorkError("platform", message, advice, rank=others[0])

    def _add_up(self, piece: Tensor) -> None:
        """Put the sum over all ranks in the place of what this one has.

        Processors add it in the memory of the machine, in the order of the ranks: all get the same
        bits, and no device has to reach another one.
        """
        own = piece if piece.device.type == "cpu" else self._staged(piece)
        gathered = self._gather(own)
        torch.add(gathered[0], gathered[1], out=own)
        for other in gathered[2:]:
            own.add_(other)
        if own is not piece:
            piece.copy_(own, non_blocking=True)

    def _staged(self, piece: Tensor) -> Tensor:
        """A copy of what is on a device in pinned memory, which is the fastest to copy to and from.

        There is one such memory, and each copy follows the last one on the device's stream.
        """
        if not len(self._staging):
            elements = self._part_bytes // piece.itemsize
            self._staging = torch.empty(elements, dtype=piece.dtype, pin_memory=True)
        own = self._staging[: len(piece)]
        own.copy_(piece, non_blocking=True)
        torch.cuda.current_stream(piece.device).synchronize()
        return own

    @property
    def _part_bytes(self) -> int:
        return 0 if self._exchange is None else self._exchange.part_bytes

    def _gather(self, tensor: Tensor) -> list[Tensor]:
        """What each rank has, in their order. Raises RankLost."""
        return [tensor] if self._exchange is None else self._exchange.gather(tensor)


ALONE: Final = Ranks()


def digest_of(tensors: Mapping[str, Tensor]) -> bytes:
    """A hash of names and values."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name].detach().contiguous().cpu()
        digest.update(name.encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.digest()


def _parts(weights: Iterable[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Weights in their order, so many at a time that gradients of a part are gathered at once.

    most: elements of a part; a larger weight is one by itself
    """
    part: list[Tensor] = []
    for weight in weights:
        if part and sum(other.numel() for other in part) + weight.numel() > most:
            yield part
            part = []
        part.append(weight)
    if part:
        yield part

"""What the ranks of a training do together: each computes a part of every step.

A step sees the same rows in the same micro-batches as with one rank; rank r of n computes the
micro-batches r, r + n, … of it. Each divides by the items of the whole step, so that the sum of
all gradients is the gradient of the step. Once a step each rank adds those of its share of the
weights, in the order of the ranks, and takes their step (`adamw`); all get the new weights.
torch's DistributedDataParallel, FSDP and DeepSpeed would add them in an order that their buckets
and the transport choose (docs/decisions/0035-shares-by-our-own-exchange.md).

They are no group of torch's: libraries that see one divide batches and wrap models by themselves.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Final

import torch
from torch import Tensor

from tunery.ml.exchange import Exchange, bytes_of
from tunery.ml.shares import RankShare, length_of
from tunery.work.exits import WorkError

EMPTY: Final[Mapping[int, Tensor]] = {}
EXCHANGE_VERSION: Final = "2"  # of what ranks tell each other in a step: nodes may differ


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
    def waited_s(self) -> float:
        """How long this rank has waited for others so far."""
        return 0.0 if self._exchange is None else self._exchange.waited_s

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

    def givers(self, micro_batch: int, of: int) -> int:
        """How many ranks compute one while this one is computed; they are the first ones.

        of: micro-batches of the step
        """
        return min(self.count, of - micro_batch // self.count * self.count)

    def add_to_owners(
        self,
        gradients: Sequence[Tensor],
        owners: Sequence[int],
        totals: Mapping[int, Tensor] = EMPTY,
        givers: int | None = None,
    ) -> None:
        """Put the sum of a gradient over ranks in its place, in the rank that owns it.

        gradients: contiguous and in fp32, in all ranks of the same shapes
        owners: the rank of each
        totals: sums of this rank that a gradient of all ranks is added to instead, by its number
        givers: how many ranks have some, the first ones; None: all

        Processors add them in the memory of the machine, in the order of the ranks: no device has
        to reach another one. Raises RankLost.
        """
        if self.count == 1:
            return
        giving = range(self.count if givers is None else givers)
        flat = [gradient.view(-1) for gradient in gradients]
        sums = [totals.get(at, each).view(-1) for at, each in enumerate(flat)]
        width = torch.float32.itemsize
        shares = self._shares([len(each) for each in flat], owners)
        most = self._part_bytes // (width * self.count)
        for at in range(0, max(share.size for share in shares), most):
            stretches = [share.between(at, at + most) for share in shares]
            ends = accumulate((width * length_of(each) for each in stretches), initial=0)
            reads = [slice(*each) for each in pairwise(ends)]
            own, size = reads[self.number], reads[-1].stop
            if self.number in giving:
                self._write([flat[number][part] for each in stretches for number, part in each])
            else:
                reads = [slice(0, 0)] * self.count
                self._settle()
            written = [size if rank in giving else 0 for rank in range(self.count)]
            offered = self._meet(written, reads)[: len(giving)]
            begin = 0
            for number, part in stretches[self.number]:
                total = sums[number][part]
                pieces = [each[own].view(torch.float32)[begin:][: len(total)] for each in offered]
                self._add_up(pieces, total, begin, onto=number in totals)
                begin += len(total)

    def tell(
        self,
        own: Mapping[int, Tensor],
        sizes: Sequence[int],
        owners: Sequence[int],
        *,
        first_only: bool = False,
    ) -> Iterator[tuple[int, slice, Tensor]]:
        """What each rank has, in pieces: the number of a tensor, which bytes of it, and these.

        All ranks have to go on to the end; a piece stays until the one after the next.
        own: contiguous tensors of this rank, by their number
        sizes: bytes of each tensor
        owners: the rank that has it
        first_only: no other rank gets anything

        Raises RankLost.
        """
        flat = {number: bytes_of(tensor) for number, tensor in own.items()}
        if self.count == 1:
            yield from ((number, slice(0, len(each)), each) for number, each in flat.items())
            return
        shares = self._shares(sizes, owners)
        for at in range(0, max(share.size for share in shares), self._part_bytes or 1):
            stretches = [share.between(at, at + self._part_bytes) for share in shares]
            written = list(map(length_of, stretches))
            self._write([flat[number][part] for number, part in stretches[self.number]])
            whole, empty = slice(0, written[self.number]), slice(0, 0)
            others = empty if first_only else whole
            parts = self._meet(written, [whole, *[others] * (self.count - 1)])
            if first_only and not self.is_first:
                continue
            for stretch, content in zip(stretches, parts, strict=True):
                begin = 0
                for number, part in stretch:
                    end = begin + part.stop - part.start
                    yield number, part, content[begin:end]
                    begin = end

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
        return self.any_of_each([is_so])[0]

    def any_of_each(self, are_so: Sequence[bool]) -> list[bool]:
        """The same of several. Raises RankLost."""
        return [total > 0 for total in self.add(list(map(float, are_so)))]

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

    def _shares(self, sizes: Sequence[int], owners: Sequence[int]) -> list[RankShare]:
        return [RankShare(rank, sizes, owners) for rank in range(self.count)]

    def _add_up(self, pieces: Sequence[Tensor], total: Tensor, begin: int, *, onto: bool) -> None:
        """Put the sum of what each rank has in its place, or add one after the other to it.

        begin: where it is staged on its way to a device
        """
        out = total if total.device.type == "cpu" else self._staging_of(total, begin)
        first, *others = pieces
        if onto:
            others = [first, *others]
            if out is not total:
                out.copy_(total)
        elif others:
            torch.add(first, others.pop(0), out=out)
        else:
            out.copy_(first)
        for other in others:
            out.add_(other)
        if out is not total:
            total.copy_(out, non_blocking=True)

    def _write(self, pieces: Sequence[Tensor]) -> int:
        """Put tensors into this rank's part of the memory, one after the other; how many bytes.

        What is on a device goes by pinned memory, which is the fastest to copy to.
        """
        assert self._exchange is not None, "several ranks"  # noqa: S101  # each caller knows it
        part, begin = self._exchange.own_part(), 0
        on_devices: list[tuple[Tensor, Tensor]] = []
        for piece in pieces:
            content = piece.view(torch.uint8)
            target = part[begin : begin + len(content)]
            if content.device.type == "cpu":
                target.copy_(content)
            else:
                on_devices.append((target, self._staging_of(content, begin)))
                on_devices[-1][1].copy_(content, non_blocking=True)
            begin += len(content)
        if on_devices:
            torch.cuda.current_stream().synchronize()
        for target, staged in on_devices:
            target.copy_(staged)
        return begin

    def _settle(self) -> None:
        """Wait until what was staged is on the device: a rank that writes has waited for it."""
        if len(self._staging):
            torch.cuda.current_stream().synchronize()

    def _staging_of(self, tensor: Tensor, begin: int) -> Tensor:
        """Pinned memory for what begins there in a part.

        There is one such memory, and each copy follows the last one on the device's stream.
        """
        if not len(self._staging):
            self._staging = torch.empty(self._part_bytes, dtype=torch.uint8, pin_memory=True)
        first = begin * tensor.itemsize
        return self._staging[first : first + tensor.nbytes].view(tensor.dtype)

    def _meet(self, written: Sequence[int], reads: Sequence[slice]) -> list[Tensor]:
        """What each rank has written, in their order. Raises RankLost."""
        assert self._exchange is not None, "several ranks"  # noqa: S101  # each caller knows it
        return self._exchange.meet(written, reads)

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
        digest.update(name.encode())
        digest.update(bytes_of(tensors[name].contiguous().cpu()).numpy().tobytes())
    return digest.digest()

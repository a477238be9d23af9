"""AdamW with masters in fp32, each rank of a training with a share of the weights."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.nn import Parameter

from tunery.ml.exchange import bytes_of
from tunery.ml.ranks import ALONE, Ranks
from tunery.ml.sharding import ShardedLayers
from tunery.ml.shares import owners_of

MOMENTS: Final = ("exp_avg", "exp_avg_sq", "step")
Piece: TypeAlias = tuple[str, slice, Tensor]  # name of a tensor, which bytes of it, and these


class GradientSum:
    """The sum of the micro-batches' gradients of a weight, where it has no master here."""

    grad: Tensor | None = None


class AdapterAdamW(torch.optim.AdamW):
    """AdamW that keeps an fp32 master copy of every weight that is narrower.

    An update of 1e-4 on a weight of 1e-2 is close to the resolution of bf16: added to the weight
    itself most updates would be lost. So would gradients of micro-batches that are added in bf16:
    each goes to its master when it is computed, and is added and clipped there.

    Of several ranks each has masters and moments of its share of the weights alone, and takes their
    steps. Adam's step of a weight depends on no other one, so the weights get the bits that they
    would get if each rank stepped all of them.

    The weights of sharded layers are their masters, in the type of the run. Ranks that have some
    add up the gradients of each micro-batch before they compute the next one (`hand_over`).
    """

    def __init__(
        self,
        weights: Mapping[str, Parameter],
        *,
        rate: float,
        weight_decay: float,
        ratio: float = 1.0,
        whole: bool = False,
        ranks: Ranks = ALONE,
        sharded: ShardedLayers | None = None,
    ) -> None:
        """`ratio`: rate of the matrices B of LoRA by that of all other weights (LoRA+).

        whole: of a model whose every weight is trained; its norms and biases do not decay
        """
        self.is_whole = whole
        self.live = dict(weights)
        self._ranks, self._sharded = ranks, sharded
        if ranks.count > 1:  # they are told as bytes
            for live in self.live.values():
                live.data = live.data.contiguous()
        self._owners = owners_of(self.live, ranks.count)
        own = [name for name, owner in self._owners.items() if owner == ranks.number]
        dealt = {} if sharded is None else sharded.masters
        self.masters = {
            name: dealt[name] if name in dealt else self._new_master(self.live[name])
            for name in own
        }
        groups = _whole(self.live, self.masters) if whole else _groups(self.masters, rate, ratio)
        super().__init__(groups, lr=rate, weight_decay=weight_decay)
        self._sums: dict[str, Tensor | GradientSum] = {
            name: live if self._is_master(live) else self.masters.get(name, GradientSum())
            for name, live in self.live.items()
        }
        if sharded is not None:
            sharded.hand_over = self.hand_over
            return
        for name, live in self.live.items():
            if self._sums[name] is not live:
                hook = partial(_hand_over, self._sums[name])
                live.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]  # torch

    @property
    def state_bytes(self) -> int:
        """Of masters and moments, whichever ranks have them."""
        values = sum(live.numel() for live in self.live.values())
        return 3 * values * torch.float32.itemsize

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no closure, no loss
        self._hand_over_all()
        super().step()
        self.drop_gradients()
        self.publish()

    @torch.no_grad()
    def clip(self, norm_max: float) -> Tensor:
        """Scale the gradients of a step down to a norm; the norm that they had.

        Of several ranks they are added before; each keeps those of its share. Raises RankLost.
        """
        names = self._add_up()
        own = [name for name in names if name in self.masters]
        here = dict(zip(own, _norms([self.masters[name] for name in own]), strict=True))
        every = self._ranks.add([here.get(name, 0.0) for name in names])
        device = next(iter(self.live.values())).device
        norms = torch.tensor(every, dtype=torch.float32, device=device)
        norm: Tensor = torch.linalg.vector_norm(norms)
        torch.nn.utils.clip_grads_with_norm_(list(self.masters.values()), norm_max, norm)
        return norm

    @torch.no_grad()
    def rehearse(self) -> None:
        """Take a step that changes nothing: it needs the memory that every later one needs."""
        self._hand_over_all()
        self._drop_of_others()
        for master in self.masters.values():
            if master.grad is not None:
                master.grad.zero_()
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            group["weight_decay"] = 0.0
        super().step()  # by gradients of zero: no weight moves
        for group, decay in zip(self.param_groups, decays, strict=True):
            group["weight_decay"] = decay
        self.state.clear()
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Forget all gradients."""
        for total in self._sums.values():
            total.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the masters into the weights the model computes with: in all ranks.

        Raises RankLost.
        """
        names = list(self.live)
        if self._sharded is not None:
            names = self._sharded.beside
            self._sharded.forget()
        for name in names:
            live = self.live[name]
            if (master := self.masters.get(name, live)) is not live:
                live.copy_(master)
        if self._ranks.count == 1:
            return
        every = [bytes_of(self.live[name]) for name in names]
        owners = [self._owners[name] for name in names]
        own = {
            number: every[number] for number in range(len(names)) if names[number] in self.masters
        }
        for number, part, content in self._ranks.tell(own, list(map(len, every)), owners):
            if number not in own:
                every[number][part].copy_(content)

    def tensors(self) -> dict[str, Tensor]:
        """Masters and moments that are here, named `<weight>.master`, `<weight>.exp_avg`, …

        A weight in fp32 is its own master, and so in every rank, unless layers are sharded.
        """
        tensors: dict[str, Tensor] = {}
        for name, live in self.live.items():
            master = live if self._is_master(live) else self.masters.get(name)
            if master is not None:
                tensors[f"{name}.master"] = master.detach()
            if name in self.masters:
                for moment, value in self.state.get(self.masters[name], {}).items():
                    tensors[f"{name}.{moment}"] = value
        return tensors

    def elsewhere(self) -> dict[str, torch.Size]:
        """Names and shapes, all in fp32, of what the first rank does not have in `tensors`.

        All ranks have to ask. Raises RankLost.
        """
        here = [name in self.masters and self.masters[name] in self.state for name in self.live]
        shapes: dict[str, torch.Size] = {}
        for (name, live), has_moments in zip(
            self.live.items(), self._ranks.any_of_each(here), strict=True
        ):
            if self._owners[name] == 0:
                continue
            if not self._is_master(live):
                shapes[f"{name}.master"] = live.shape
            for moment in MOMENTS if has_moments else ():
                shapes[f"{name}.{moment}"] = torch.Size() if moment == "step" else live.shape
        return shapes

    @torch.no_grad()
    def gather(self, shapes: Mapping[str, torch.Size]) -> Iterator[Piece]:
        """The tensors of `elsewhere`, in pieces, for the first rank. All have to go on to the end.

        Raises RankLost.
        """
        names, tensors = list(shapes), self.tensors()
        owners = [self._owners[name.rpartition(".")[0]] for name in names]
        own = {
            number: tensors[name].contiguous()
            for number, (name, owner) in enumerate(zip(names, owners, strict=True))
            if owner == self._ranks.number
        }
        sizes = [torch.float32.itemsize * shape.numel() for shape in shapes.values()]
        for number, part, content in self._ranks.tell(own, sizes, owners, first_only=True):
            yield names[number], part, content

    def give(self) -> None:
        """Have the first rank gather: what a checkpoint is of all others. Raises RankLost."""
        for _ in self.gather(self.elsewhere()):
            pass

    @torch.no_grad()
    def restore_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the weights alone. Raises `KeyError` when one is missing, RankLost."""
        for name, master in self.masters.items():
            master.copy_(tensors[f"{name}.master"])
        self.publish()

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]) -> None:
        """Undo `tensors()`. Raises `KeyError` when a weight's state is missing.

        The masters of a whole model were restored as its weights.
        """
        if not self.is_whole:
            self.restore_weights(tensors)
        for name, master in self.masters.items():
            state = {moment: tensors[f"{name}.{moment}"].clone() for moment in MOMENTS}
            device = master.device
            self.state[master] = {
                key: value if key == "step" else value.to(device) for key, value in state.items()
            }
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({**saved, "betas": tuple(saved["betas"])})

    def groups(self) -> list[dict[str, Any]]:
        """Settings of the parameter groups, the scheduled rate among them."""
        return [
            {name: value for name, value in group.items() if name != "params"}
            for group in self.param_groups
        ]

    def _is_master(self, live: Tensor) -> bool:
        """Whether a weight is its own master. Beside sharded layers each gradient is of one
        micro-batch: the sum of all is kept elsewhere.
        """
        return live.dtype == torch.float32 and self._sharded is None

    def _new_master(self, live: Parameter) -> Tensor:
        if self._is_master(live):
            return live
        return live.detach().to(torch.float32, copy=True).requires_grad_()

    # --- gradients
    @torch.no_grad()
    def hand_over(self, names: Sequence[str], givers: int) -> None:
        """Add the gradients of a micro-batch of each of the first ranks to the sums of the owners.

        They are added one after the other, as one process adds its own. All ranks have to ask, of
        the same weights; those that are no givers have none. Raises RankLost.
        """
        here = [self.live[name].grad is not None for name in names]
        there = self._ranks.any_of_each(here)
        summed = [name for name, is_there in zip(names, there, strict=True) if is_there]
        gradients = [_wide_gradient(self.live[name]) for name in summed]
        owners = [self._owners[name] for name in summed]
        own = {at: self.masters[name] for at, name in enumerate(summed) if name in self.masters}
        totals = {at: master.grad for at, master in own.items() if master.grad is not None}
        self._ranks.add_to_owners(gradients, owners, totals, givers)
        for at, master in own.items():
            master.grad = totals.get(at, gradients[at])
        for name in summed:
            self.live[name].grad = None

    def _hand_over_all(self) -> None:
        for name, live in self.live.items():
            if self._sums[name] is not live:
                _hand_over(self._sums[name], live)

    def _add_up(self) -> list[str]:
        """Add the gradients of all ranks, each in the rank that has its weight; which there are.

        A weight without a gradient in any rank stays without. Raises RankLost.
        """
        here = [total.grad is not None for total in self._sums.values()]
        anywhere = self._ranks.any_of_each(here)
        names = [name for name, is_there in zip(self._sums, anywhere, strict=True) if is_there]
        if self._ranks.count > 1 and self._sharded is None:
            gradients = [self._gradient(name) for name in names]
            self._ranks.add_to_owners(gradients, [self._owners[name] for name in names])
            self._drop_of_others()
        return names

    def _gradient(self, name: str) -> Tensor:
        """Of a weight; zeros where only other ranks have one."""
        total = self._sums[name]
        if total.grad is None:
            total.grad = torch.zeros_like(self.live[name], dtype=torch.float32)
        total.grad = total.grad.contiguous()
        return total.grad

    def _drop_of_others(self) -> None:
        for name, total in self._sums.items():
            if name not in self.masters:
                total.grad = None


def _groups(masters: Mapping[str, Tensor], rate: float, ratio: float) -> list[dict[str, Any]]:
    """Parameter groups. The first has the rate that is reported."""
    if ratio == 1.0:
        return [{"params": list(masters.values())}]
    slow = [master for name, master in masters.items() if ".lora_B." not in name]
    fast = [master for name, master in masters.items() if ".lora_B." in name]
    return [{"params": slow}, {"params": fast, "lr": ratio * rate}]


def _whole(live: Mapping[str, Tensor], masters: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Parameter groups of a whole model, as transformers has them: norms and biases apart.

    They are those of all ranks: in one that has no weight of a group, it is empty.
    """
    kinds: list[tuple[Callable[[Tensor], bool], dict[str, Any]]] = [
        (lambda weight: weight.dim() > 1, {}),
        (lambda weight: weight.dim() <= 1, {"weight_decay": 0.0}),
    ]
    return [
        {"params": [master for master in masters.values() if is_so(master)], **settings}
        for is_so, settings in kinds
        if any(map(is_so, live.values()))
    ]


def _norms(masters: Sequence[Tensor]) -> list[float]:
    """Of their gradients, each by itself: the bits do not depend on who has which."""
    gradients = [master.grad for master in masters if master.grad is not None]
    if not gradients:
        return []
    norms: list[float] = torch.stack(torch._foreach_norm(gradients)).tolist()  # as torch's clipping
    return norms


def _wide_gradient(live: Tensor) -> Tensor:
    """Of a weight, in fp32; zeros where only other ranks have one."""
    if live.grad is None:
        return torch.zeros(live.shape, dtype=torch.float32, device=live.device)
    return live.grad.float().contiguous()


@torch.no_grad()
def _hand_over(total: Tensor | GradientSum, live: Tensor) -> None:
    """Add the gradient of a weight to where the sum of its micro-batches is kept."""
    if live.grad is None:
        return
    wide = live.grad.float()
    total.grad = wide if total.grad is None else total.grad.add_(wide)
    live.grad = None

"""The loss that keeps the experts of a mixture evenly used, for every method, device and engine.

Switch Transformer's (Fedus et al., arXiv:2101.03961, eq. 4), as transformers computes it from the
logits of all routers in a pass. TRL adds it to the loss of a micro-batch by `router_aux_loss_coef`,
by default the base's own; so does this. Validation losses are without it: they compare models.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch import Tensor

from tunery.ml.attention import causal_of
from tunery.plan.methods import REWARD
from tunery.work.exits import WorkError
from tunery.work.spec import Hyper

# Fields of a configuration that count experts; one without any has none in some families.
EXPERTS: Final = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")


def router_coefficient(config: Any) -> float:
    """Return how much the base's own configuration adds of the loss; 0: it has no routers."""
    if not returns_router_logits(config):
        return 0.0
    return float(getattr(config.get_text_config(), "router_aux_loss_coef", None) or 0.0)


def returns_router_logits(config: Any) -> bool:
    """Return whether a family computes the loss, and this model of it has experts."""
    text = config.get_text_config()
    has_experts = any(getattr(text, name, None) or 0 for name in EXPERTS)
    return has_experts and hasattr(text, "output_router_logits")


class RouterLoss:
    """Collects the loss from passes with gradients through a model, whoever makes them."""

    def __init__(self, model: Any, coefficient: float) -> None:
        """Raises WorkError("user") for a model without routers."""
        self._causal = causal_of(model)
        if not returns_router_logits(self._causal.config):
            message = f"{self._causal.config.model_type} is no mixture of experts with such a loss"
            raise WorkError("user", message, "Set training.router_aux_loss_coef to 0.")
        self._coefficient = coefficient
        self._passes: list[tuple[Tensor, int]] = []  # losses, and the tokens they are of

    @classmethod
    def of(cls, model: Any, hyper: Hyper) -> "RouterLoss | None":
        """Return the loss that a training adds; None: nothing.

        Raises WorkError("user") as the constructor does.
        """
        coefficient = hyper.router_aux_loss
        if coefficient is None:
            is_of_text = hyper.method != REWARD
            coefficient = router_coefficient(causal_of(model).config) if is_of_text else 0.0
        return cls(model, coefficient) if coefficient else None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Count routers' losses within the block alone: other trainings share the base."""
        self._passes.clear()
        hooks = (
            self._causal.register_forward_pre_hook(self._ask, with_kwargs=True),
            self._causal.register_forward_hook(self._collect, with_kwargs=True),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def take(self) -> Tensor:
        """Weighted loss of the passes that were collected, each by its tokens."""
        passes, self._passes = self._passes, []
        if not passes:
            return torch.zeros(())
        losses = torch.stack([loss.float() * tokens for loss, tokens in passes])
        return self._coefficient * losses.sum() / sum(tokens for _, tokens in passes)

    @staticmethod
    def _ask(module: Any, positional: Any, named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        if module.training and torch.is_grad_enabled():
            named = named | {"output_router_logits": True}
        return positional, named

    def _collect(self, module: Any, _: Any, named: dict[str, Any], output: Any) -> None:
        loss = getattr(output, "aux_loss", None)
        if module.training and torch.is_grad_enabled() and isinstance(loss, Tensor):
            self._passes.append((loss, named["input_ids"].numel()))

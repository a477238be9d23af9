"""Choice of the pool's nodes that fit a request, and why there are none. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from schemas.training import Device
from services.gateway.jobs.domain.bodies import PlacementBody
from services.gateway.jobs.domain.requested import GRADER, RequestProblem
from tunery.plan.scheduling.capacity import most_slots
from tunery.plan.scheduling.requests import whole_gib

NAMES_SAID_MAX: Final = 16


@dataclass(frozen=True)
class NodeKind:
    """Nodes of the pool that are alike."""

    is_alive: bool
    device: Device
    accelerator: str  # model of their devices; empty: unknown
    slots: int
    memory_bytes: int  # memory of each device; of the machine if it has none
    spot: bool = False
    taints: tuple[str, ...] = ()  # only jobs that tolerate all of them get such a node
    domain: str = ""  # the network in which they reach each other fast; empty: unknown
    nodes: int = 1  # how many there are
    scores: bool = False  # their agents ask the operator's endpoint for the scores of graders
    fabric: bool = False  # a training may have several of them

    @property
    def slot_bytes(self) -> int:
        """Slots of a CPU share their machine's memory."""
        return self.memory_bytes // (self.slots if self.device == "cpu" else 1)


@dataclass(frozen=True)
class NodeChoice:
    """The nodes that fit a request; `problem` says why the pool's nodes do not.

    For a pool without nodes there is no problem: nodes that fit may join later.
    """

    nodes: Sequence[NodeKind]
    problem: RequestProblem | None = None

    @property
    def device(self) -> Device:
        """`cuda` if a live node has an accelerator, or any node if none is alive."""
        nodes = [node for node in self.nodes if node.is_alive] or self.nodes
        return "cuda" if any(node.device == "cuda" for node in nodes) else "cpu"

    @property
    def most_slots(self) -> int:
        """Slots that a training could have at most, of several nodes; 0: there is no such node."""
        return most_slots(
            (
                (whole_gib(node.memory_bytes), node.accelerator, node.spot, node.taints),
                node.fabric,
                node.slots,
            )
            for node in self.of_device
            for _ in range(node.nodes)
        )

    @property
    def of_device(self) -> Sequence[NodeKind]:
        """The nodes that have `device`."""
        return [node for node in self.nodes if node.device == self.device]


def choose_nodes(
    asked: PlacementBody, nodes: Sequence[NodeKind], *, asks_models: bool = False
) -> NodeChoice:
    """Filter nodes by each requirement of a request, and name the first that none meets.

    A request that waits for its domain for a limited time may later get nodes of other domains. A
    domain that no node has is refused even then.

    asks_models: its grader asks models, which every node that it may get has to do
    """
    if asked.domain is None and asked.domain_wait_minutes is not None:
        text = "says how long the job waits for a domain; name it with placement.domain"
        return NodeChoice((), RequestProblem("placement.domain_wait_minutes", text))
    suited = nodes
    if asked.accelerator is not None:
        suited = [node for node in suited if node.accelerator == asked.accelerator]
        if nodes and not suited:
            models = _names(node.accelerator for node in nodes)
            others = f"there are {models}" if models else "they do not say their model"
            text = f"no node of the pool has {asked.accelerator} devices: {others}"
            return NodeChoice((), RequestProblem("placement.accelerator", text))
    if asked.domain is not None:
        inside = [node for node in suited if node.domain == asked.domain]
        if nodes and not inside:
            domains = _names(node.domain for node in suited)
            others = f"there are {domains}" if domains else "they do not say their domain"
            text = f"no such node of the pool is in the domain {asked.domain}: {others}"
            return NodeChoice((), RequestProblem("placement.domain", text))
        suited = suited if asked.domain_wait_minutes is not None else inside
    if asked.spot is False:
        others_than_spot = [node for node in suited if not node.spot]
        if suited and not others_than_spot:
            text = "all such nodes of the pool are spot machines; leave it out, or allow them "
            return NodeChoice((), RequestProblem("placement.spot", f"{text}with true"))
        suited = others_than_spot
    tolerated = [node for node in suited if {*node.taints} <= {*asked.tolerations}]
    if suited and not tolerated:
        kept = sorted({", ".join(sorted(node.taints)) for node in suited})[:NAMES_SAID_MAX]
        text = "all such nodes of the pool are kept for jobs that tolerate their taints: "
        problem = RequestProblem("placement.tolerations", f"{text}name all of {' or '.join(kept)}")
        return NodeChoice((), problem)
    choice = NodeChoice(tolerated)
    silent = [node for node in choice.of_device if node.is_alive and not node.scores]
    if asks_models and silent:
        text = (
            "score_model asks a model, and some nodes that the job may get have no endpoint to ask "
            "(TUNERY_NODE_SCORE_URL): name others in placement, or tell the operator"
        )
        return NodeChoice((), RequestProblem(GRADER, text))
    return choice


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted({*names} - {""})[:NAMES_SAID_MAX])

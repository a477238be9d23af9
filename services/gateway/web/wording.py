"""Sentences of the API for the codes on the logs.

The logs contain codes with parameters (`schemas.reasons`). The sentences are made here, so that
they can be corrected without changing a journal.
"""

from collections.abc import Mapping
from typing import Any, Final

from schemas.envelope import Reason
from schemas.reasons import SkipCode, WaitCode
from schemas.units import HOUR_MS

WAITS: Final[Mapping[WaitCode, str]] = {
    "file_validation": "The training file is being validated.",
    "inputs_preparation": "The dataset is being prepared and the base model pinned.",
    "inputs_not_ready": "The file, the dataset or the base model is not ready yet.",
    "placement": "Waiting for slots of the pool.",
    "paused": "Paused. Resume the job to go on.",
    "node_preparation": "A node is fetching the inputs.",
    "draining": "The job was told to stop: it finishes its step and writes a checkpoint.",
    "scoring": "The base model and the adapter are being scored.",
    "judging": "The scores are being judged.",
    "publishing": "The adapter is being published.",
    "no_node_up": "No node of the pool is up.",
    "no_capacity": "Waiting for {slots}: every node that fits is busy.",
    "gang_too_large": "No node of the pool has {slots}. The job waits until one is added.",
    "excluded_nodes": "Every node that fits has failed under this job.",
    "lane_order": "Jobs before it in its lane, or in a higher one, come first.",
    "reservation": "Free slots are reserved for a job before it.",
    "topology": "The free slots are too far from each other for this job.",
    "price_class": "Only slots of another price class are free.",
    "quota": "The tenant uses all that it may use at the same time.",
    "budget": "The budget is used up until the next period.",
}
SKIPS: Final[Mapping[SkipCode, str]] = {
    "blob_missing": "a file of it is not in object storage",
    "blob_corrupt": "a file of it has another hash than its name says",
    "unusable": "the training process could not load it",
}


def wait_words(reason: Reason | None) -> str | None:
    """Why a job waits, or what it does, as a sentence."""
    return None if reason is None else _fill(WAITS, reason)


def skip_words(reason: Reason) -> str:
    """Why a checkpoint was passed over, as a clause."""
    return _fill(SKIPS, reason)


def hours(gpu_ms: int) -> str:
    """Hundredths of an hour, rounded up."""
    return _hundredths(-(-gpu_ms * 100 // HOUR_MS))


def money(micro: int) -> str:
    """Hundredths of the currency, rounded up."""
    return _hundredths(-(-micro // 10_000))


def _hundredths(count: int) -> str:
    return f"{count // 100}.{count % 100:02}"


def _fill(catalogue: Mapping[Any, str], reason: Reason) -> str:
    """A code without words is shown as it is: it comes from a newer writer."""
    params = {name: _show(name, value) for name, value in reason.params.items()}
    try:
        return catalogue[reason.code].format_map(params)
    except KeyError:
        return reason.code


def _show(name: str, value: str | int) -> str:
    """A parameter as people read it; the unit ends its name."""
    if isinstance(value, str):
        return value
    if name == "slots":
        return f"{value} slot" + ("" if value == 1 else "s")
    if name.endswith("_gpu_ms"):
        return hours(value)
    if name.endswith("_micro"):
        return money(value)
    return str(value)

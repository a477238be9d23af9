"""Checks that configurations of a sweep can take turns in one job."""

from collections.abc import Sequence
from typing import Any, Final

from services.gateway.jobs.domain.requested import SLOTS
from services.gateway.jobs.domain.resolve import Resolved
from services.gateway.web.domain.errors import invalid
from tunery.plan.memory import memory_of_variants

# Hyper-parameters that are equal: rows are prepared once, and the base is in memory once.
ALIKE: Final = ("max_length", "method", "precision", "threads")
# What each has to be, and why.
NEEDED: Final[dict[str, tuple[Any, str]]] = {
    "adaptation": ("lora", "of a base that none of them changes or quantises"),
    "engine": ("single", "of which one process has the base"),
}


def check_turns(every: Sequence[Resolved], colocate: int) -> None:
    """Raises ApiError if a sweep has too many configurations to take turns in one job."""
    spec = every[0].spec
    hypers = [resolved.spec.hyper for resolved in every]
    if spec.slots > 1:
        text = f"configurations take turns on one slot, and the job has {spec.slots}"
        raise _refused(text, f"job.{SLOTS}", "set it to 1")
    if spec.integrations:
        text = "a run of an integration has the figures of one training"
        raise _refused(text, "job.integrations", "leave them out")
    if spec.hyper.method == "reinforcement":
        text = "while one trains by reinforcement, the others would wait for its answers"
        raise _refused(text, "job.method.type", "use another method")
    for name, (needed, why) in NEEDED.items():
        for value in (getattr(hyper, name) for hyper in hypers):
            if value != needed:
                text = (
                    f"configurations take turns with {name} {needed!r}, {why}; here it is {value!r}"
                )
                raise _refused(text, f"job.training.{name}", f"set it to {needed!r}")
    for name in ALIKE:
        values = sorted({str(getattr(hyper, name)) for hyper in hypers})
        if len(values) > 1:
            text = f"configurations take turns with the same {name}; here it is {', '.join(values)}"
            raise _refused(text, f"parameters.{name}", "try one sweep for each")
    _check_memory(every, colocate)


def _check_memory(every: Sequence[Resolved], colocate: int) -> None:
    """Raises ApiError where no node has the memory for those that need most."""
    spec, largest = every[0].spec, every[0].memory_max
    if largest is None:
        return
    most = colocate
    hypers = sorted(
        (resolved.spec.hyper for resolved in every),
        key=lambda hyper: memory_of_variants(spec.base, [hyper], spec.device, every[0].tokens),
        reverse=True,
    )

    def needed(count: int) -> int:
        return memory_of_variants(spec.base, hypers[:count], spec.device, every[0].tokens)

    while most > 1 and needed(most) > largest:
        most -= 1
    if most < colocate:
        text = (
            f"{min(colocate, len(hypers))} of these configurations in one process need about "
            f"{needed(colocate) / 1e9:.1f} GB of memory, and the largest node has "
            f"{largest / 1e9:.1f} GB"
        )
        raise invalid(f"{text}; set colocate to {most}", "colocate")


def _refused(text: str, param: str, fix: str) -> Exception:
    return invalid(f"{text}; {fix}, or leave colocate out", param)

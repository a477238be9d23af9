"""Follows a job, and writes it to mirrors until it has ended."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from tunery.client import Api


class Mirror(Protocol):
    """A destination that a job is copied to, such as a TensorBoard folder.

    Call `begin`, then `add` for each step in order, then `end`; `close` in any case. A mirror
    that is written again shows each step once.
    """

    def begin(self, job: Mapping[str, Any]) -> int:
        """Write the parameters of a job. Returns the last step that is there already; 0: none."""
        ...

    def add(self, step: Mapping[str, Any]) -> None:
        """Write the figures of a step, as `Api.metrics` has it."""
        ...

    def end(self, job: Mapping[str, Any]) -> None:
        """Write what became of the job."""
        ...

    def close(self) -> None:
        """Release what is open. What was added is kept."""
        ...

    @property
    def destination(self) -> str:
        """The file, the folder or the address of what was written; known from `begin` on."""
        ...


def mirror_job(api: "Api", job_id: str, mirrors: Sequence[Mirror]) -> tuple[Any, int]:
    """The job when it has ended, and how many steps it has. The steps of a running job are written
    as they come.

    A lost attempt continues from a checkpoint, and its steps after that come again with the same
    figures: the first of them are written. Raises LocalError when the figures of its steps are not
    kept any more, ApiRefusal, Unreachable.
    """
    last_steps: list[int] = []
    last = 0
    for step in api.follow(job_id, "metrics"):
        if not last_steps:
            job = api.job(job_id)
            last_steps = [mirror.begin(job) for mirror in mirrors]
        number = _number(step)
        last = max(last, number)
        for index, mirror in enumerate(mirrors):
            if number > last_steps[index]:
                mirror.add(step)
                last_steps[index] = number
    ended: Any = api.job(job_id)
    if not last_steps:
        if ended["trained_tokens"]:
            text = f"the figures of the steps of {job_id} are not kept any more"
            fix = f"`tunery job show {job_id} --json` names its result file, which has the losses"
            raise LocalError(text, fix)
        for mirror in mirrors:
            mirror.begin(ended)
    for mirror in mirrors:
        mirror.end(ended)
    return ended, last


def _number(step: Mapping[str, Any]) -> int:
    return int(step["step"])

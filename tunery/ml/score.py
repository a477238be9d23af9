"""Score a base model and an adapter on the bundled items and the tenant's validation rows.

    python -m tunery.ml.score SPEC.json

Reads a `tunery.work.spec.ScoreSpec`, writes `tunery.work.events` to standard output, and leaves
with a `tunery.work.exits.ExitCode`. Items and prompts that the spec does not name are those in
`items/`, the same for every tenant. On SIGTERM or SIGINT it leaves with `PREEMPTED` and writes no
results.
"""

from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tunery.ml.events import EventWriter
from tunery.ml.imports import large_imports
from tunery.ml.inputs import read_score_spec
from tunery.ml.process import leave_out_bitsandbytes, main
from tunery.ml.stop import StopRequest
from tunery.plan.methods import REWARD
from tunery.work.exits import ExitCode
from tunery.work.spec import ScoreSpec

ITEMS: Final = Path(__file__).with_name("items")


def score_file(
    path: Path, events: EventWriter, stop: StopRequest, *, alone: bool = False, load: Any = None
) -> ExitCode:
    """Score by a spec file. Raises WorkError when the inputs cannot be scored.

    alone: the process does nothing else, before or after
    load: gives the base of an adapter, as `tunery.ml.model.load_base`; None: that does
    """
    spec = read_score_spec(path)
    if alone and spec.adaptation != "qlora":
        leave_out_bitsandbytes()
    if spec.method == REWARD:
        with large_imports():  # as below
            from tunery.ml.model import load_base
            from tunery.ml.reward_scoring import score_pairs

        return score_pairs(spec, events, stop, load or load_base)
    spec = with_bundled_items(spec)
    with large_imports():  # torch and peft take seconds; a bad spec fails before
        from tunery.ml.model import load_base
        from tunery.ml.scoring import score

    return score(spec, events, stop, load or load_base)


def with_bundled_items(spec: ScoreSpec) -> ScoreSpec:
    """The spec with the items and prompts of `items/` where it names none."""
    items, prompts = spec.items, spec.prompts
    if items is None:
        items = str(ITEMS / "capability.jsonl")
    if prompts is None:
        content = (ITEMS / "prompts.json").read_bytes()
        prompts = msgspec.json.decode(content, type=tuple[str, ...])[: spec.prompts_max]
    return msgspec.structs.replace(spec, items=items, prompts=prompts)


if __name__ == "__main__":
    main("tunery.ml.score", partial(score_file, alone=True))

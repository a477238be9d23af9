"""Score base and adapter: the bundled items and prompts, and the tenant's validation rows.

    python -m tunery.ml.score SPEC.json

The node agent starts it under a lease of role eval. The spec is a `tunery.work.spec.ScoreSpec`
without items and prompts; those are ours, and the same for everybody.
"""

from pathlib import Path

import msgspec

from tunery.ml.events import Events
from tunery.ml.process import main
from tunery.ml.stop import Stop

ITEMS = Path(__file__).with_name("items")


def score_file(path: Path, events: Events, stop: Stop) -> int:
    """An exit code. Raises `Refused` with the cause when the inputs cannot be scored."""
    from tunery.ml.scoring import read_score_spec, score  # torch and peft: seconds

    prompts = msgspec.json.decode((ITEMS / "prompts.json").read_bytes(), type=tuple[str, ...])
    spec = msgspec.structs.replace(
        read_score_spec(path), items=str(ITEMS / "capability.jsonl"), prompts=prompts
    )
    return score(spec, events, stop)


if __name__ == "__main__":
    main("tunery.ml.score", score_file)

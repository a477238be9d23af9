"""Score base and adapter on plain files.

    python -m tunery.ml.score SPEC.json

Reads a `tunery.ml.spec.ScoreSpec`; says `started`, `progress`, then one of `finished`,
`preempted`, `failed`, as JSON lines; exit codes as in `tunery.ml.events`. SIGTERM or SIGINT: it
leaves with `EXIT_PREEMPTED` and writes nothing.
"""

from pathlib import Path

from tunery.ml.events import Events
from tunery.ml.process import main
from tunery.ml.stop import Stop


def score_file(path: Path, events: Events, stop: Stop) -> int:
    """An exit code. Raises `Refused` with the cause when the inputs cannot be scored."""
    from tunery.ml.scoring import read_score_spec, score  # torch and peft: seconds

    return score(read_score_spec(path), events, stop)


if __name__ == "__main__":
    main("tunery.ml.score", score_file)

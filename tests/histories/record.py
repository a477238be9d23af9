"""Records the stories that have no journal yet: `python -m tests.histories.record`.

An export of one partition (`tunery journal export STREAM recorded/STREAM.STORY.jsonl -p N`) that
lies with the others is taken in as it is. A journal that was recorded stays as it is for ever. What
it folds to is written again only where the fold version was bumped; the difference is there to be
reviewed.
"""

import sys
from hashlib import sha256
from pathlib import Path

import msgspec

from tests.histories.catalogue import STORIES, Story
from tests.histories.recorder import Recorder
from tests.histories.replaying import FOLDER, SUMS, difference, expected, histories, outcome, sums
from tunery.runtime.tools.archive import write


def record(name: str, story: Story, folder: Path) -> None:
    recorder = Recorder(name, story.aggregate, story.key)
    story.tell(recorder)
    with (folder / f"{name}.jsonl").open("wb") as file:
        write(file, story.aggregate.stream.name, recorder.bounds, recorder.records)


def take_in(folder: Path) -> None:
    """From now on these files are never edited."""
    known = sums(folder)
    with (folder / SUMS).open("a", encoding="ascii") as file:
        for path in sorted(folder.glob("*.jsonl")):
            if path.name not in known:
                file.write(f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
                sys.stdout.write(f"{path.stem}: recorded\n")


def main(folder: Path = FOLDER) -> int:
    folder.mkdir(exist_ok=True)
    for name, story in STORIES.items():
        if not (folder / f"{name}.jsonl").exists():
            record(name, story, folder)
    take_in(folder)
    wrong = []
    for history in histories(folder):
        path, folded = folder / f"{history.name}.state.json", outcome(history)
        if not path.exists() or expected(history.name, folder).fold_version != folded.fold_version:
            path.write_bytes(msgspec.json.encode(folded) + b"\n")
            sys.stdout.write(f"{history.name}: folds to {folded.state_hash}\n")
        elif problem := difference(history.name, expected(history.name, folder), folded):
            wrong.append(problem)
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

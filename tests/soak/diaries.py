"""The diaries of the soak's processes, read while they are written."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.history import Place


class Settled(NamedTuple):
    """An owner's decision that it read back; `t_ns` is the machine's monotonic time."""

    owner: str  # name and pid
    t_ns: int


@dataclass
class Diaries:
    """`settled`: decisions by place, in the order of each diary."""

    folder: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    settled: dict[Place, list[Settled]] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)

    def refresh(self) -> None:
        """Take in the whole lines that were written since."""
        for file in sorted(self.folder.glob("owner-*.diary")):
            with file.open("rb") as text:
                text.seek(self._read.get(file, 0))
                for line in text:
                    if not line.endswith(b"\n"):
                        break
                    self._read[file] = self._read.get(file, 0) + len(line)
                    self._note(file.stem, json.loads(line))

    def _note(self, owner: str, line: dict[str, Any]) -> None:
        self.lines.append(line)
        if line["what"] == "settled":
            place = Place(line["stream"], line["partition"])
            self.settled.setdefault(place, []).append(Settled(owner, line["t_ns"]))

    def owned_by(self, owner: str) -> set[Place]:
        """Places where the newest decision was made by this process."""
        newest = {
            place: max(found, key=lambda one: one.t_ns) for place, found in self.settled.items()
        }
        return {place for place, one in newest.items() if one.owner == owner}

    def first_after(self, place: Place, t_ns: int, not_by: str = "") -> int | None:
        """Time of the first decision after `t_ns` that another process than `not_by` made."""
        found = self.settled.get(place, ())
        return min(
            (one.t_ns for one in found if one.t_ns > t_ns and one.owner != not_by), default=None
        )


def client_lines(folder: Path) -> Sequence[dict[str, Any]]:
    text = (folder / "client.diary").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]

"""Logs that the soak's processes write for its checker ("diaries"), read while they grow."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak.history import StreamPartition


class Settled(NamedTuple):
    """A decision that its owner has read back. t_ns: monotonic clock of the machine."""

    owner: str  # name and pid
    t_ns: int


@dataclass
class Diaries:
    """All diaries of a folder. settled: decisions by partition, in the order of each diary."""

    folder: Path
    lines: list[dict[str, Any]] = field(default_factory=list)
    settled: dict[StreamPartition, list[Settled]] = field(default_factory=dict)
    _read: dict[Path, int] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the complete lines that were written since the last call."""
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
            partition_id = StreamPartition(line["stream"], line["partition"])
            self.settled.setdefault(partition_id, []).append(Settled(owner, line["t_ns"]))

    def owned_by(self, owner: str) -> set[StreamPartition]:
        """Partitions where the newest decision was made by this process."""
        newest = {
            partition_id: max(decisions, key=lambda settled: settled.t_ns)
            for partition_id, decisions in self.settled.items()
        }
        return {partition_id for partition_id, settled in newest.items() if settled.owner == owner}

    def first_after(self, partition_id: StreamPartition, t_ns: int, not_by: str = "") -> int | None:
        """Time of the first decision after `t_ns` that another process than `not_by` made."""
        decisions = self.settled.get(partition_id, ())
        return min(
            (
                decision.t_ns
                for decision in decisions
                if decision.t_ns > t_ns and decision.owner != not_by
            ),
            default=None,
        )


def client_lines(folder: Path) -> Sequence[dict[str, Any]]:
    text = (folder / "client.diary").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]

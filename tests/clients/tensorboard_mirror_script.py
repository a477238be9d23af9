"""Reads a mirrored job by TensorBoard's own reader: `tensorboard_mirror_script.py JOB_ID`."""

import json
import sys
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

(folder,) = [path.parent for path in Path().rglob("*tfevents*") if path.parent.name == sys.argv[1]]
events = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
events.Reload()


def table(name: str) -> dict[str, str]:
    """A text that is a table of names and values."""
    (text,) = events.Tensors(f"{name}/text_summary")[-1].tensor_proto.string_val
    rows = [row.strip("| ").split(" | ", 1) for row in text.decode().splitlines()[2:]]
    return dict(rows)


points = events.Scalars("train/loss")
print(
    json.dumps(
        {
            "runs": len([*folder.parent.iterdir()]),
            "points": len(points),
            "losses": {str(point.step): point.value for point in points},
            "parameters": table("parameters"),
            "summary": table("summary"),
        }
    )
)

"""Reads a mirrored job by W&B's own package: `wandb_mirror_script.py JOB_ID`."""

import json
import sys
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore

files = [*Path().rglob(f"offline-run-*/run-{sys.argv[1]}.wandb")]
store = DataStore()
store.open_for_scan(str(files[0]))
losses: list[tuple[int, float]] = []
parameters: dict[str, str] = {}
summary: dict[str, str] = {}


def items(message):  # type: ignore[no-untyped-def]  # W&B's messages have no types here
    """Names and values of a record's items."""
    for item in message:
        yield item.key or "/".join(item.nested_key), json.loads(item.value_json)


while data := store.scan_data():
    record = Record()
    record.ParseFromString(data)
    if record.HasField("run"):
        parameters |= {name: str(value) for name, value in items(record.run.config.update)}
    if record.HasField("summary"):
        summary |= {name: str(value) for name, value in items(record.summary.update)}
    if record.HasField("history"):
        figures = dict(items(record.history.item))
        losses.append((figures["_step"], figures["train/loss"]))
print(
    json.dumps(
        {
            "runs": len(files),
            "points": len(losses),
            "losses": {str(step): loss for step, loss in losses},
            "parameters": parameters,
            "summary": summary,
        }
    )
)

"""Reads a mirrored job by the messages of W&B's package: `wandb_mirror_script.py JOB_ID`.

The file of a run is a log in LevelDB's format: after 7 bytes, blocks of 32 KiB with parts of
records, each with checksum, length and kind.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from wandb.proto.wandb_internal_pb2 import Record

HEAD_BYTES = 7  # of the file and of a part
BLOCK_BYTES = 32_768
WHOLE, LAST = 1, 4  # kinds of parts that end a record


def records(content: bytes) -> Iterator[bytes]:
    """The records of a file; what an interrupted writer left at its end is no record."""
    at, record = HEAD_BYTES, b""
    while at + HEAD_BYTES <= len(content):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEAD_BYTES:
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        record += content[at + HEAD_BYTES : at + HEAD_BYTES + length]
        at += HEAD_BYTES + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def items(message: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Names and values of a record's items."""
    for item in message:
        yield item.key or "/".join(item.nested_key), json.loads(item.value_json)


files = [*Path().rglob(f"offline-run-*/run-{sys.argv[1]}.wandb")]
losses: list[tuple[int, float]] = []
parameters: dict[str, str] = {}
summary: dict[str, str] = {}
for data in records(files[0].read_bytes()):
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

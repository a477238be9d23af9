"""An adapter, the version it is submitted as, and a header of the journal."""

import hashlib
import json
import struct

from schemas.envelope import Header
from schemas.model import Lineage, VersionSubmitted, VersionTerms
from schemas.training import BlobFile
from tunery.runtime.blobs.memory import MemoryBlobs

SHA = "a" * 64
MODEL = "ft:small:acme:friendly:1"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def adapter() -> dict[str, bytes]:
    config = {"base_model_name_or_path": "small", "r": 4}
    header = json.dumps(
        {"up.lora_A.weight": {"dtype": "F32", "shape": [4, 8], "data_offsets": [0, 128]}}
    ).encode()
    return {
        "adapter_config.json": (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
        "adapter_model.safetensors": struct.pack("<Q", len(header)) + header + bytes(128),
    }


def whole_model() -> dict[str, bytes]:
    files = adapter()
    return {
        "config.json": b'{"model_type": "llama"}',
        "model.safetensors": files["adapter_model.safetensors"].replace(b"up.lora_A", b"up.linear"),
        "tokenizer.json": b"{}",
    }


async def submitted(blobs: MemoryBlobs, files: dict[str, bytes]) -> VersionSubmitted:
    lineage = Lineage(
        job_id="ftjob-1",
        base_id="small",
        base_sha256=SHA,
        dataset_version="v",
        training_sha256=SHA,
        config_sha256=SHA,
        steps=1,
        verdict="pass",
        scores_sha256=SHA,
    )
    named = []
    for name, data in files.items():
        key = f"t/acme/jobs/1/{name}"
        await blobs.put(key, data)
        named.append(BlobFile(name=name, blob=key, sha256=sha(data), bytes=len(data)))
    return VersionSubmitted(
        adapter=tuple(named), terms=VersionTerms(model_id=MODEL, series="series", lineage=lineage)
    )


def header() -> Header:
    return Header(
        stream="model",
        partition=0,
        offset=0,
        at=0,
        key="acme",
        tenant="acme",
        seq=1,
        command_id="c",
        incarnation=0,
    )

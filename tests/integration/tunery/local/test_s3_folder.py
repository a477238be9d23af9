"""A base model out of real object storage."""

import asyncio
from pathlib import Path

import boto3
import pytest

from tests.unit.services.gateway.models.test_base_folders import a_base
from tests.unit.tunery.cli.scripted_api import ScriptedApi
from tests.unit.tunery.cli.test_base import BASE
from tunery.local.errors import LocalError
from tunery.local.s3_folder import download
from tunery.local.stack import Stack
from tunery.platform.blobs.base_files import hash_base


async def test_first_hour_a_base_is_added_out_of_object_storage(
    servers: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (
        ("AWS_ENDPOINT_URL", servers.s3_endpoint),
        ("AWS_ACCESS_KEY_ID", servers.s3_access_key),
        ("AWS_SECRET_ACCESS_KEY", servers.s3_secret_key),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("TUNERY_CACHE_DIR", str(tmp_path / "cache")),
    ):
        monkeypatch.setenv(name, value)
    origin = a_base(tmp_path / "origin")
    await asyncio.to_thread(put, servers.s3_bucket, origin)
    url = f"s3://{servers.s3_bucket}/models/Smol-1B"
    api = ScriptedApi(monkeypatch, {"POST /bases": BASE})
    done = await asyncio.to_thread(api.run, "base", "add", "--unchecked", url, "--licence", "MIT")
    assert done.exit_code == 0, done.output
    folder = tmp_path / "cache" / "bases" / f"{servers.s3_bucket}--Smol-1B"
    assert api.bodies == [{"id": "smol-1b", "path": str(folder), "licence": "MIT"}]
    assert hash_base(folder) == hash_base(origin)
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    ]
    counts: list[int] = []
    await asyncio.to_thread(download, url, folder, counts.append)
    assert sum(counts) == sum(path.stat().st_size for path in folder.iterdir())
    for wrong, message in (
        (f"{url}9", "no \\*.safetensors"),
        ("s3://nowhere-at-all/x", "cannot be read"),
    ):
        with pytest.raises(LocalError, match=message):
            await asyncio.to_thread(download, wrong, tmp_path / "none", counts.append)


def put(bucket: str, folder: Path) -> None:
    client = boto3.client("s3")
    for path in folder.iterdir():
        client.upload_file(str(path), bucket, f"models/Smol-1B/{path.name}")
    client.put_object(Bucket=bucket, Key="models/Smol-1B/original/model.safetensors", Body=b"x")
    client.put_object(Bucket=bucket, Key="models/Smol-1B/run.py", Body=b"print()")

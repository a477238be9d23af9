"""Downloads a base model from a folder in object storage: `s3://bucket/prefix`.

Address and keys are those of the AWS tools: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, a profile, a role.
"""

from pathlib import Path
from typing import Any, Final

from tunery.local.errors import LocalError
from tunery.local.hub import HubFile, Progress, read_files

SCHEME: Final = "s3://"


def parts_of(url: str) -> tuple[str, str]:
    """Bucket and prefix of `s3://bucket/prefix`; the prefix ends with a slash unless empty."""
    bucket, _, prefix = url.removeprefix(SCHEME).partition("/")
    prefix = prefix.strip("/")
    return bucket, f"{prefix}/" if prefix else ""


def download(url: str, folder: Path, progress: Progress) -> None:
    """Fetch the files that a base model is read from; those with the same size are kept.

    progress: called with the bytes that came since the last call. Raises LocalError.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    bucket, prefix = parts_of(url)
    try:
        client = boto3.client("s3")
        files = list(read_files(_listed(client, bucket, prefix)))
        if not any(file.name.endswith(".safetensors") for file in files):
            fix = "name the folder with config.json and *.safetensors in it"
            raise LocalError(f"{url} has no *.safetensors", fix)
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            target = folder / file.name
            if target.is_file() and target.stat().st_size == file.bytes:
                progress(file.bytes)
                continue
            partial = target.with_name(f"{target.name}.part")
            client.download_file(bucket, prefix + file.name, str(partial), Callback=progress)
            partial.replace(target)
    except (BotoCoreError, ClientError) as error:
        fix = "set AWS_ENDPOINT_URL and the keys as for the AWS tools"
        raise LocalError(f"{url} cannot be read: {error}", fix) from error


def _listed(client: Any, bucket: str, prefix: str) -> list[HubFile]:
    """The objects directly in the folder."""
    pages = client.get_paginator("list_objects_v2").paginate(
        Bucket=bucket, Prefix=prefix, Delimiter="/"
    )
    objects = [item for page in pages for item in page.get("Contents", ())]
    return [HubFile(item["Key"].removeprefix(prefix), item["Size"], None, None) for item in objects]

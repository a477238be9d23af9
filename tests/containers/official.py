"""Servers of official images, for as long as the tests run."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml

from tests.environments import pinned_environment

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
SERVERS: Final = ("kafka", "postgres", "s3", "valkey")


class NoContainers(Exception):
    """There is nothing to run the tests over."""


def images() -> dict[str, str]:
    """The images of the servers, as the stack for Docker Compose has them."""
    compose = yaml.safe_load((ROOT / "infra/compose/compose.yaml").read_text(encoding="utf-8"))
    return {name: compose["services"][name]["image"] for name in SERVERS}


@contextmanager
def containers() -> Iterator[Mapping[str, str]]:
    """Variables of servers that run until the end. Raises NoContainers."""
    try:
        python = pinned_environment(HERE / "requirements.txt") / "python"
    except (OSError, subprocess.SubprocessError) as error:
        raise NoContainers(f"testcontainers cannot be installed: {error}") from error
    command = [str(python), str(HERE / "start.py"), json.dumps(images())]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            _, errors = process.communicate()
            raise NoContainers((errors.strip().splitlines() or ["it said nothing"])[-1])
        try:
            yield json.loads(line)
        finally:
            process.communicate()

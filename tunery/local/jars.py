"""Installs the jars of Apache Kafka that `jars.lock` names; jgo downloads them.

`python -m tunery.local.jars install` fetches what is missing; `lock` resolves the versions anew.
"""

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.local.errors import LocalError
from tunery.local.paths import KAFKA_VERSION, cache_dir, kafka_jars_dir
from tunery.platform.blobs.files import file_sha256

LOCK: Final = Path(__file__).with_name("jars.lock")
ROOTS: Final = (f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}", "org.slf4j:slf4j-simple:1.7.36")
DOWNLOADS_MAX: Final = 8  # at once
ATTEMPTS_MAX: Final = 3
HEADER: Final = """\
# Apache Kafka's jars: group:artifact:version and the SHA-256 each file must have.
# Written by: python -m tunery.local.jars lock
"""


@dataclass(frozen=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version} sha256:{self.sha256}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Read lock lines `group:artifact:version sha256:HEX`. Raises LocalError with the line."""
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        coordinates, _, sha256 = line.partition(" sha256:")
        parts = coordinates.split(":")
        if len(parts) != 3 or len(sha256) != 64:
            raise LocalError(
                f"{LOCK.name} line {number}: not `group:artifact:version sha256:HEX`: {line!r}",
                "restore the file from git",
            )
        group, artifact, version = parts
        jars.append(Jar(group, artifact, version, sha256))
    return tuple(jars)


def missing(folder: Path, jars: Iterable[Jar]) -> list[Jar]:
    return [jar for jar in jars if not (folder / jar.file_name).is_file()]


def install(
    folder: Path | None = None, fetch: Callable[[Jar, Path], Path] | None = None
) -> tuple[Path, int]:
    """Install every locked jar into `folder`; returns the folder and how many were fetched.

    A file is renamed into the folder only after its hash was compared.
    Raises LocalError for a jar that cannot be downloaded or whose hash differs.
    """
    target = kafka_jars_dir() if folder is None else folder
    target.mkdir(parents=True, exist_ok=True)
    wanted = missing(target, parse_lock(LOCK.read_text(encoding="utf-8")))
    if not wanted:
        return target, 0
    get = _fetch_with_jgo if fetch is None else fetch
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=".jars-") as scratch,
        ThreadPoolExecutor(DOWNLOADS_MAX) as pool,
    ):

        def install_one(jar: Jar) -> None:
            path = get(jar, Path(scratch))
            sha256 = file_sha256(path)
            if sha256 != jar.sha256:
                raise LocalError(
                    f"{jar.file_name}: SHA-256 is {sha256}, {LOCK.name} says {jar.sha256}",
                    "the package source has another file: check its mirror, then try again",
                )
            path.replace(target / jar.file_name)

        for done in [pool.submit(install_one, jar) for jar in wanted]:
            done.result()
    return target, len(wanted)


def _fetch_with_jgo(jar: Jar, scratch: Path) -> Path:
    from jgo.maven import MavenContext

    context = MavenContext(repo_cache=scratch)
    component = context.project(jar.group, jar.artifact).at_version(jar.version)
    reason = ""
    for _attempt in range(ATTEMPTS_MAX):
        try:
            return Path(component.artifact().resolve())
        except Exception as problem:  # its errors have no common base class
            reason = f"{type(problem).__name__}: {problem}"
    raise LocalError(
        f"{jar.group}:{jar.artifact}:{jar.version} could not be downloaded ({reason})",
        "check the network or the Maven mirror, then run `make setup` again",
    )


def resolve_lock() -> str:
    """Resolve ROOTS with their dependencies; returns the text of a lock file."""
    from jgo.env import EnvironmentBuilder
    from jgo.maven import MavenContext

    with tempfile.TemporaryDirectory(dir=cache_dir(), prefix=".lock-") as scratch:
        builder = EnvironmentBuilder(
            context=MavenContext(repo_cache=Path(scratch) / "m2"), cache_dir=Path(scratch) / "env"
        )
        environment = builder.from_endpoint("+".join(ROOTS))
        jars = [
            str(
                Jar(
                    dependency.groupId, dependency.artifactId, dependency.version, dependency.sha256
                )
            )
            for dependency in environment.lockfile.dependencies
        ]
        shutil.rmtree(Path(scratch) / "env")
    return HEADER + "\n".join(sorted(jars)) + "\n"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            cache_dir().mkdir(parents=True, exist_ok=True)
            LOCK.write_text(resolve_lock(), encoding="utf-8")
        case ["install"]:
            folder, count = install()
            print(f"kafka {KAFKA_VERSION}: {count} jars fetched, all in {folder}")
        case _:
            sys.exit("usage: python -m tunery.local.jars install | lock")

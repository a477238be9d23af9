"""Checks of an installation that others depend on: servers, rights, keys, clocks, certificates.

Each finding says its fix. Everything is read, and nothing is changed.
"""

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tunery.local.doctor import Diagnosis
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.ports import LOOPBACK

if TYPE_CHECKING:
    from tunery.platform.bus.grants import KafkaGrant
    from tunery.platform.bus.kafka import KafkaSettings
    from tunery.platform.bus.kafka_configs import ClusterState
    from tunery.platform.settings import RuntimeSettings
    from tunery.runtime.tools.upgrade import RunningProcess

SKEW_S_MAX: Final = 5.0
CERTIFICATE_DAYS_MIN: Final = 21
DISK_SHARE_MIN: Final = 0.1
DISK_BYTES_MIN: Final = 10 * 1024**3
ANSWER_S_MAX: Final = 10.0
REPLICAS: Final = 3
NAMED_MAX: Final = 3  # topics, principals or processes that a finding names
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
PREPARE: Final = "tunery kafka prepare"


def check_production(folders: DataDir) -> list[Diagnosis]:
    """Check the installation of the environment, else the stack of the data directory."""
    from pydantic import ValidationError

    from tunery.platform.kafka_login import PREFIX
    from tunery.platform.settings import explain

    try:
        settings = settings_of(folders, os.environ)
    except ValidationError as error:
        fix = "set the variables of a service, such as those of infra/systemd/environment"
        return [Diagnosis("settings", "; ".join(explain(error, PREFIX)), fix)]
    return [
        *asyncio.run(kafka(settings, folders)),
        *asyncio.run(postgres(settings)),
        *storage(settings),
        *asyncio.run(valkey(settings)),
        *key_folders(settings.keys, settings.roots),
        *certificates(settings.certificates(), time.time()),
        *switches(settings),
        disk(settings.data_dir),
    ]


def settings_of(folders: DataDir, environ: Mapping[str, str]) -> "RuntimeSettings":
    """Read how the installation is reached: the environment goes before the data directory's
    stack. Raises ValidationError.
    """
    from tunery.local.settings import of_stack
    from tunery.platform.settings import RuntimeSettings

    try:
        known = of_stack(folders, environ).environment()
    except LocalError:
        known = {"TUNERY_DATA_DIR": str(folders.root)}
    names = {f"TUNERY_{name.upper()}": name for name in RuntimeSettings.model_fields}
    values: dict[str, Any] = {
        names[variable]: value
        for variable, value in {**known, **environ}.items()
        if variable in names
    }
    return RuntimeSettings(**values)


# --- Kafka ----------------------------------------------------------------------------------------


async def kafka(settings: "RuntimeSettings", folders: DataDir) -> list[Diagnosis]:
    """Check brokers, topics, rights, quotas, and who else is there."""
    from schemas.streams import NODE, service_of
    from schemas.topics import SERVICES, TOPICS
    from tunery.platform.bus.grants import grants_of
    from tunery.platform.bus.kafka_accounts import Account, missing_grants
    from tunery.platform.bus.kafka_configs import describe
    from tunery.platform.bus.kafka_quotas import producer_limits
    from tunery.platform.connections import patient_kafka_settings
    from tunery.runtime.bus.abstract import BusError

    own = patient_kafka_settings(settings)
    try:
        there = await describe(own, [topic.name for topic in TOPICS])
    except BusError as error:
        return [unreachable_kafka(str(error))]
    diagnoses = [brokers(there, own), *topics(there)]
    if not is_encrypted(settings):
        fix = "set TUNERY_KAFKA_SECURITY_PROTOCOL=SASL_SSL: see docs/how-to/secure-kafka.md"
        diagnoses.append(
            Diagnosis("kafka tls", f"{settings.kafka_security_protocol} over a net", fix)
        )
    try:
        services = [service for service in SERVICES if service != NODE]
        accounts = {name: Account(grants_of(service_of(name))) for name in services}
        lacking = await missing_grants(own.login, own.bootstrap, accounts)
        limits = await producer_limits(own.login, own.bootstrap)
        diagnoses.append(rights(lacking, len(services)))
    except BusError as error:
        fix = "log in as an operator, and set an authorizer: see docs/how-to/secure-kafka.md"
        return [*diagnoses, Diagnosis("rights", str(error), fix)]
    return [*diagnoses, *await _processes(folders, limits)]


async def _processes(folders: DataDir, limits: Mapping[str, float]) -> list[Diagnosis]:
    """Check the processes on this Kafka: strangers, and nodes without a quota."""
    from tunery.cli.upgrade import read_state

    try:
        state = await read_state(folders, None)
    except LocalError as error:
        return [Diagnosis("processes", error.what, error.fix)]
    return [strangers(state.processes), quotas(state.processes, limits)]


def unreachable_kafka(error: str) -> Diagnosis:
    """Say why Kafka does not answer, by what its client was told."""
    low = error.lower()
    fix = "start the brokers, or correct TUNERY_KAFKA_BOOTSTRAP"
    if "certificate has expired" in low:
        fix = "renew the certificate of the brokers, or the one in TUNERY_KAFKA_CA_FILE"
    elif "certificate_verify_failed" in low or "certificate verify failed" in low:
        fix = "set TUNERY_KAFKA_CA_FILE to the authority that signed the brokers' certificates"
    elif "certificate" in low or "ssl" in low:
        fix = "check TUNERY_KAFKA_SECURITY_PROTOCOL and TUNERY_KAFKA_CERTIFICATE_FILE"
    elif "authentication" in low or "sasl" in low:
        fix = "correct TUNERY_KAFKA_USERNAME and TUNERY_KAFKA_PASSWORD"
    return Diagnosis("kafka", error, fix)


def brokers(there: "ClusterState", own: "KafkaSettings") -> Diagnosis:
    """Number of live brokers, and settings that do not fit."""
    from tunery.platform.bus.broker_settings import violations

    unfit = {
        violation.name: violation
        for broker, values in there.brokers.items()
        for violation in violations(values, broker, own.session_timeout_ms, there.live)
    }
    if there.live < REPLICAS:
        detail = f"{there.live} live: a lost disk is a lost journal"
        return Diagnosis("brokers", detail, "run three brokers or more, on three machines")
    if unfit:
        detail = "; ".join(violation.text for violation in unfit.values())
        return Diagnosis("brokers", detail, "; ".join(each.fix for each in unfit.values()))
    if there.silent:
        detail = "; ".join(f"broker {broker}: {why}" for broker, why in there.silent.items())
        return Diagnosis("brokers", detail, "let the operator describe brokers' settings")
    return Diagnosis("brokers", f"{there.live} live, settings as needed")


def topics(there: "ClusterState") -> Iterator[Diagnosis]:
    """Topics that are missing, lose records or have the wrong time."""
    from schemas.topics import TOPICS
    from tunery.platform.bus.preparation import differences

    missing = [topic.name for topic in TOPICS if topic.name not in there.topics]
    known = [topic for topic in TOPICS if topic.name in there.topics]
    if missing:
        yield Diagnosis("topics", f"missing: {some(missing)}", PREPARE)
    timed = [
        topic.name
        for topic in known
        if (there.topics[topic.name].settings or {}).get("message.timestamp.type")
        not in (None, "LogAppendTime")
    ]
    if timed:
        detail = f"clients choose the time of records (LogAppendTime is off): {some(timed)}"
        yield Diagnosis("topic time", detail, PREPARE)
    few = [topic.name for topic in known if there.topics[topic.name].replicas < REPLICAS]
    if few:
        replicas = min(there.topics[name].replicas for name in few)
        fix = "run three brokers, then add replicas with kafka-reassign-partitions.sh"
        yield Diagnosis("replicas", f"{replicas} in {some(few)}", fix)
    other = [
        topic.name
        for topic in known
        if topic.name not in timed and differences(topic, there.topics[topic.name])[0]
    ]
    if other:
        yield Diagnosis("topics", f"older settings: {some(other)}", PREPARE)
    if not (missing or timed or few or other):
        yield Diagnosis("topics", f"{len(known)}, each with {REPLICAS} replicas or more")


def rights(lacking: Mapping[str, Sequence["KafkaGrant"]], services: int) -> Diagnosis:
    """Rights that the catalogue of topics gives, and Kafka does not have."""
    if not lacking:
        return Diagnosis("rights", f"{services} services have theirs")
    names = [
        f"{principal} may not {grant.operation} {grant.resource} {grant.name}"
        for principal, grants in lacking.items()
        for grant in grants
    ]
    return Diagnosis("rights", some(names), f"{PREPARE}, with --principal where Kafka renames one")


def strangers(processes: Iterable["RunningProcess"]) -> Diagnosis:
    """Processes whose announcements are not signed with keys of this installation."""
    unknown = [each.process for each in processes if not each.proven]
    if not unknown:
        return Diagnosis("processes", "all have keys of this installation")
    detail = f"{some(unknown)} run here with other keys: another installation on this Kafka?"
    return Diagnosis("processes", detail, "give each installation a Kafka of its own, or its keys")


def quotas(processes: Iterable["RunningProcess"], limits: Mapping[str, float]) -> Diagnosis:
    """Nodes that may write to the brokers without a limit."""
    from schemas.streams import node_of

    nodes = sorted({each.service for each in processes if node_of(each.service) is not None})
    free = [node for node in nodes if node not in limits]
    if not free:
        return Diagnosis("quotas", f"{len(nodes)} nodes have one")
    options = " ".join(f"--node {node.partition('.')[2]}" for node in free[:NAMED_MAX])
    return Diagnosis("quotas", f"none for {some(free)}", f"{PREPARE} {options}")


def is_encrypted(settings: "RuntimeSettings") -> bool:
    """Return whether stranger on the way reads what goes to Kafka."""
    hosts = [address.rpartition(":")[0].strip() for address in settings.kafka_bootstrap.split(",")]
    return settings.kafka_security_protocol.endswith("SSL") or all(map(is_here, hosts))


# --- the other servers ----------------------------------------------------------------------------


@dataclass(frozen=True)
class DatabaseFacts:
    """Facts that PostgreSQL reports of itself."""

    version: int  # as 160003
    is_encrypted: bool  # this connection
    fsync: str
    connections_max: int
    connections: int
    ahead_s: float  # its clock less ours


async def postgres(settings: "RuntimeSettings") -> list[Diagnosis]:
    """Check the database by one connection."""
    import asyncpg

    if settings.postgres_dsn is None:
        fix = "set TUNERY_POSTGRES_DSN to the address of a service or of the owner"
        return [Diagnosis("postgres", "not checked: no address", fix)]
    try:
        connection = await asyncpg.connect(settings.postgres_dsn, timeout=ANSWER_S_MAX)
    except (OSError, ValueError, TimeoutError, asyncpg.PostgresError) as error:
        fix = "start it, or correct TUNERY_POSTGRES_DSN"
        return [Diagnosis("postgres", f"{type(error).__name__}: {error}", fix)]
    try:
        begun = time.time()
        (row,) = await connection.fetch(
            "SELECT current_setting('server_version_num')::int AS version, "
            "current_setting('fsync') AS fsync, extract(epoch FROM clock_timestamp()) AS now, "
            "current_setting('max_connections')::int AS most, "
            "(SELECT count(*) FROM pg_stat_activity)::int AS used, "
            "coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false) AS tls"
        )
        middle = (begun + time.time()) / 2
    finally:
        await connection.close()
    host = urlsplit(settings.postgres_dsn).hostname or "localhost"
    there = DatabaseFacts(
        version=row["version"],
        is_encrypted=row["tls"] or is_here(host),
        fsync=row["fsync"],
        connections_max=row["most"],
        connections=row["used"],
        ahead_s=float(row["now"]) - middle,
    )
    return list(database(there))


def database(there: DatabaseFacts) -> Iterator[Diagnosis]:
    """Yield the findings on a database."""
    if not there.is_encrypted:
        fix = (
            "add ?sslmode=verify-full to TUNERY_POSTGRES_DSN: see docs/how-to/secure-postgresql.md"
        )
        yield Diagnosis("postgres tls", "the connection is not encrypted", fix)
    if there.fsync != "on":
        yield Diagnosis("postgres", "fsync is off: a power cut breaks it", "set fsync = on")
    free = there.connections_max - there.connections
    if free < there.connections_max // 10:
        detail = f"{there.connections} of {there.connections_max} connections are in use"
        yield Diagnosis("postgres", detail, "raise max_connections: each process holds up to eight")
    yield skew("PostgreSQL", there.ahead_s)
    yield Diagnosis("postgres", f"version {there.version // 10_000}, fsync {there.fsync}")


def skew(server: str, ahead_s: float) -> Diagnosis:
    """Compare a server's clock with this machine's."""
    if abs(ahead_s) <= SKEW_S_MAX:
        return Diagnosis("clock", f"{server} agrees with this machine")
    word = "ahead of" if ahead_s > 0 else "behind"
    detail = f"{server} is {abs(ahead_s):.0f} s {word} this machine"
    return Diagnosis("clock", detail, "synchronise both machines with NTP (chronyd)")


def storage(settings: "RuntimeSettings") -> list[Diagnosis]:
    """Check that the bucket is there, and closed to strangers."""
    import boto3
    import httpx
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    client = boto3.client(
        "s3",
        endpoint_url=settings.s3_endpoint,
        aws_access_key_id=settings.s3_access_key,
        aws_secret_access_key=settings.s3_secret_key,
        region_name=settings.s3_region,
        config=Config(
            s3={"addressing_style": "path"}, connect_timeout=2, read_timeout=ANSWER_S_MAX
        ),
    )
    url = f"{settings.s3_endpoint.rstrip('/')}/{settings.s3_bucket}"
    try:
        head = client.list_objects_v2(Bucket=settings.s3_bucket, MaxKeys=1)
        keys = [each["Key"] for each in head.get("Contents", ())]
        strange = [httpx.get(f"{url}?list-type=2&max-keys=1", timeout=ANSWER_S_MAX).status_code]
        strange += [httpx.head(f"{url}/{key}", timeout=ANSWER_S_MAX).status_code for key in keys]
    except (BotoCoreError, ClientError, httpx.HTTPError) as error:
        fix = "start it, or correct TUNERY_S3_ENDPOINT, TUNERY_S3_BUCKET and the keys"
        return [Diagnosis("s3", str(error), fix)]
    date = head["ResponseMetadata"]["HTTPHeaders"].get("date")
    diagnoses = [bucket(settings.s3_bucket, strange)]
    if settings.s3_endpoint.startswith("http:") and not is_here(urlsplit(url).hostname or ""):
        detail = "requests are not encrypted"
        diagnoses.append(Diagnosis("s3 tls", detail, "give TUNERY_S3_ENDPOINT an https address"))
    if date:
        diagnoses.append(skew("S3", parsedate_to_datetime(date).timestamp() - time.time()))
    return diagnoses


def bucket(name: str, strange: Sequence[int]) -> Diagnosis:
    """Check that a bucket is not public. strange: statuses of requests without keys."""
    if any(status < 300 for status in strange):
        detail = f"bucket {name} answers requests without keys: it is public"
        return Diagnosis("s3", detail, "remove its public policy: see docs/how-to/secure-s3.md")
    return Diagnosis("s3", f"bucket {name} answers, and not to strangers")


async def valkey(settings: "RuntimeSettings") -> list[Diagnosis]:
    """Check that rates are counted together, and that strangers cannot change them."""
    import redis.asyncio
    from redis.exceptions import RedisError

    if settings.valkey_url is None:
        detail = "no TUNERY_VALKEY_URL: each gateway counts rates for itself"
        return [Diagnosis("valkey", detail)]
    at = urlsplit(settings.valkey_url)
    own = redis.asyncio.from_url(settings.valkey_url, socket_timeout=ANSWER_S_MAX)
    stranger = redis.asyncio.Redis(
        host=at.hostname or "", port=at.port or 6379, ssl=at.scheme == "rediss", socket_timeout=2
    )
    try:
        await own.ping()
    except (RedisError, OSError) as error:
        fix = "start it, or correct TUNERY_VALKEY_URL"
        return [Diagnosis("valkey", f"{type(error).__name__}: {error}", fix)]
    finally:
        await own.aclose()
    try:
        await stranger.ping()
    except (RedisError, OSError):
        return [Diagnosis("valkey", "answers, and not to strangers")]
    finally:
        await stranger.aclose()
    return [Diagnosis("valkey", "answers without a password", "set requirepass, or an ACL")]


# --- this machine ---------------------------------------------------------------------------------


def key_folders(keys: Path, roots: Path | None) -> Iterator[Diagnosis]:
    """Check that keys of tenants and root keys are readable by their owner alone, and wrapped."""
    for name, folder in (("keys", keys), ("roots", roots)):
        if folder is None or not folder.is_dir():
            continue
        open_paths = [path for path in (folder, *folder.rglob("*")) if _is_open(path)]
        if open_paths:
            detail = f"others can read or change {some(list(map(str, open_paths)))}"
            yield Diagnosis(name, detail, f"chmod -R go= {folder}")
        else:
            yield Diagnosis(name, f"{folder} is its owner's alone")
    if keys.is_dir() and (roots is None or not any(roots.iterdir())):
        detail = f"{keys} is in the clear: no root key wraps it"
        yield Diagnosis("roots", detail, "tunery encryption wrap: see docs/how-to/encryption.md")


def _is_open(path: Path) -> bool:
    """Return whether others than the owner may use a file, or enter its folder."""
    try:
        return bool(path.lstat().st_mode & OTHERS) and not path.is_symlink()
    except OSError:
        return False


def certificates(files: Mapping[str, Path], now_s: float) -> Iterator[Diagnosis]:
    """Check when the certificates in the settings end."""
    from tunery.platform.telemetry.certificates import first_end

    for setting, file in files.items():
        try:
            days = (first_end(file) - now_s) / 86_400
        except (OSError, ValueError) as error:
            fix = f"write a certificate in PEM to {file}"
            yield Diagnosis("certificate", f"{setting}: {error}", fix)
            continue
        if days < 0:
            detail = f"{setting}: {file} ended {-days:.0f} days ago"
        elif days < CERTIFICATE_DAYS_MIN:
            detail = f"{setting}: {file} ends in {days:.0f} days"
        else:
            yield Diagnosis("certificate", f"{setting}: {days:.0f} days are left")
            continue
        yield Diagnosis("certificate", detail, "renew it, then restart the processes one by one")


def switches(settings: "RuntimeSettings") -> Iterator[Diagnosis]:
    """Protections that the environment turns off."""
    if settings.command_keys == "off":
        detail = "TUNERY_COMMAND_KEYS=off: who may write to Kafka may send any command"
        yield Diagnosis("signatures", detail, "give each process its keys: tunery kafka keys")
    if settings.confine != "require":
        detail = f"TUNERY_CONFINE={settings.confine}: files of tenants are read without all walls"
        yield Diagnosis("confinement", detail, "unset it, on a kernel with Landlock and seccomp")
    if settings.blob_encryption == "off":
        detail = "TUNERY_BLOB_ENCRYPTION=off: files of tenants are in the clear"
        yield Diagnosis("encryption", detail, "unset it: see docs/how-to/encryption.md")


def disk(folder: Path) -> Diagnosis:
    """Space left where this machine keeps what it works on."""
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(existing)
    detail = f"{usage.free / 1024**3:.0f} of {usage.total / 1024**3:.0f} GiB free at {existing}"
    if usage.free < max(DISK_BYTES_MIN, DISK_SHARE_MIN * usage.total):
        return Diagnosis("disk", detail, "free a tenth of it, and 10 GiB, or move TUNERY_DATA_DIR")
    return Diagnosis("disk", detail)


def is_here(host: str) -> bool:
    return host.strip("[]") in LOOPBACK


def some(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMED_MAX
    return ", ".join(names[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")

"""The one table of what Tunery needs of the settings of Kafka's brokers, and why.

From it come the lines that `tunery up` writes for its own broker, what `tunery kafka prepare` and
`tunery up` check at a Kafka of your own, and the table of docs/how-to/secure-kafka.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from schemas.units import Ms

#: the client library of the log
Driver: TypeAlias = Literal["aiokafka", "confluent"]
#: session of an owner in its group: what any Kafka takes, as brokers refuse less than 6 s
SESSION_MS: Final[Ms] = 10_000
#: session timeout at the embedded broker, which allows less: a killed owner is replaced in three s
EMBEDDED_SESSION_MS: Final[Ms] = 3_000
SESSION_VARIABLE: Final = "TUNERY_SESSION_TIMEOUT_MS"
REQUEST_BYTES_MAX: Final = 8_388_608  # of one request of ours

Bound = int | str
#: the session of the owners, and the number of live brokers
SESSION: Final = "session"
BROKERS: Final = "brokers"


@dataclass(frozen=True)
class BrokerSetting:
    name: str
    default: str  # Kafka 4's
    embedded: str | None  # what `tunery up` writes; None: nothing, the default is right
    # need, rule, bound: how a broker of yours is checked. `required`: Tunery cannot run without;
    # `recommended`: it is reported and nothing is refused; `embedded`: of `tunery up` alone.
    need: Literal["required", "recommended", "embedded"]
    rule: Literal["at least", "at most", "is", "contains", "is set", ""]
    bound: Bound
    why: str


def _embedded(name: str, default: str, value: str, why: str) -> BrokerSetting:
    return BrokerSetting(name, default, value, "embedded", "", "", why)


SETTINGS: Final = (
    BrokerSetting(
        "group.min.session.timeout.ms", "6000", "1000", "required", "at most", SESSION,
        "owners join their groups with this session",
    ),
    BrokerSetting(
        "group.max.session.timeout.ms", "1800000", None, "required", "at least", SESSION,
        "owners join their groups with this session",
    ),
    BrokerSetting(
        "group.initial.rebalance.delay.ms", "3000", "0", "required", "at most", SESSION,
        "a new owner waits for its first partitions this long",
    ),
    BrokerSetting(
        "group.coordinator.rebalance.protocols", "classic,consumer,streams", None,
        "required", "contains", "classic", "owners use the classic protocol of groups",
    ),
    BrokerSetting(
        "offsets.topic.replication.factor", "3", "1", "required", "at most", BROKERS,
        "Kafka makes its topic of groups only when that many brokers live",
    ),
    BrokerSetting(
        "log.cleaner.enable", "true", None, "required", "is", "true",
        "topics of snapshots are compacted",
    ),
    BrokerSetting(
        "socket.request.max.bytes", "104857600", None, "required", "at least", REQUEST_BYTES_MAX,
        "requests of ours are up to 8 MiB",
    ),
    BrokerSetting(
        "auto.create.topics.enable", "true", "false", "recommended", "is", "false",
        "a topic with a wrong name or number of partitions is better refused",
    ),
    BrokerSetting(
        "unclean.leader.election.enable", "false", "false", "recommended", "is", "false",
        "a replica that was behind may lose records; Tunery's topics set it themselves",
    ),
    BrokerSetting(
        "offsets.retention.minutes", "10080", "2147483647", "recommended", "at least", 10_080,
        "a reader without a position reads its journal again",
    ),
    BrokerSetting(
        "authorizer.class.name", "", None, "recommended", "is set", "",
        "without rights anybody who reaches Kafka is the operator of everything",
    ),
    _embedded("offsets.topic.num.partitions", "50", "8", "one broker needs few files"),
    _embedded("transaction.state.log.replication.factor", "3", "1", "one broker"),
    _embedded("transaction.state.log.min.isr", "2", "1", "one broker"),
    _embedded("share.coordinator.state.topic.replication.factor", "3", "1", "one broker"),
    _embedded("share.coordinator.state.topic.min.isr", "2", "1", "one broker"),
    _embedded("num.network.threads", "3", "2", "a laptop has few cores"),
    _embedded("num.io.threads", "8", "4", "a laptop has few cores"),
    _embedded("background.threads", "10", "2", "a laptop has few cores"),
    _embedded("log.cleaner.dedupe.buffer.size", "134217728", "16777216", "the heap is 256 MiB"),
    _embedded("log.segment.bytes", "1073741824", "134217728", "files grow in smaller steps"),
    _embedded("broker.session.timeout.ms", "9000", "2000", "a restarted broker is known sooner"),
    _embedded("broker.heartbeat.interval.ms", "2000", "500", "a restarted broker is known sooner"),
)  # fmt: skip


def embedded_lines() -> str:
    """Lines of `server.properties` that `tunery up` writes besides addresses and accounts."""
    written = [(row.name, row.embedded) for row in SETTINGS if row.embedded is not None]
    return "".join(f"{name}={value}\n" for name, value in written)


@dataclass(frozen=True)
class Violation:
    """A setting of a broker that does not fit, and what to do, in words."""

    name: str
    required: bool
    text: str
    fix: str

    def __str__(self) -> str:
        return f"{self.text}\n  fix: {self.fix}"


def violations(
    values: Mapping[str, str | None], broker: int, session_ms: Ms, brokers: int
) -> list[Violation]:
    """Return the rules of SETTINGS that a broker violates, but for settings it does not report."""
    unfit = []
    for row in SETTINGS:
        value = values.get(row.name)
        if not row.rule or row.name not in values or (value is None and row.rule != "is set"):
            continue
        bounds: dict[Bound, Bound] = {SESSION: session_ms, BROKERS: brokers}
        bound = bounds.get(row.bound, row.bound)
        if not _holds(row, value or "", bound):
            needed = f"{row.rule} {bound}".strip()
            unfit.append(
                Violation(
                    row.name,
                    row.need == "required",
                    f"broker {broker}: {row.name} is {value or 'empty'}, and {needed} is "
                    f"{'needed' if row.need == 'required' else 'better'}: {row.why}",
                    _fix(row, bound, value or ""),
                )
            )
    return unfit


def _holds(row: BrokerSetting, value: str, bound: Bound) -> bool:
    match row.rule:
        case "at least":
            return int(value) >= int(bound)
        case "at most":
            return int(value) <= int(bound)
        case "contains":
            return str(bound) in value.split(",")
        case "is set":
            return bool(value)
        case _:
            return value == bound


def _fix(row: BrokerSetting, bound: Bound, value: str) -> str:
    line = f"in server.properties of every broker, then restart them one by one: {row.name}="
    match row.rule:
        case "contains":
            return f"{line}{value},{bound}"
        case "is set":
            return f"{line}org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        case _ if row.bound == BROKERS:
            return f"start {value} brokers, or {line}{bound}"
        case _ if row.bound == SESSION and row.name != "group.initial.rebalance.delay.ms":
            return f"set {SESSION_VARIABLE}={value} for every process, or {line}{bound}"
        case _ if row.bound == SESSION:
            return f"{line}{row.default}"
        case _:
            return f"{line}{bound}"


def guide_table() -> str:
    """The table of the guide: what a broker of yours needs."""
    bounds: dict[Bound, str] = {SESSION: f"`{SESSION_VARIABLE}`", BROKERS: "the number of brokers"}
    lines = ["| setting | | Kafka's default | why |", "|---|---|---|---|"]
    for row in SETTINGS:
        if row.rule:
            need = "" if row.need == "required" else "better "
            bound = bounds.get(row.bound, f"`{row.bound}`") if row.bound != "" else ""
            default = f"`{row.default}`" if row.default else "not set"
            rule = f"{need}{row.rule} {bound}".strip()
            lines.append(f"| `{row.name}` | {rule} | {default} | {row.why} |")
    return "\n".join(lines)

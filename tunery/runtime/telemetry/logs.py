"""Structured logs: one JSON object a line on stdout, `event` first, never a secret.

An event is a dotted name in the field's terms (effect.row_lease_lost); the rest are fields.
Where they are known, `job_id`, `tenant`, `attempt`, `request_id` and `trace_id` are among them.
Hosts bind what they work on with `log_context`: every line of a job, also a library's,
carries `job_id`, `tenant` and `attempt`.
"""

import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO
from urllib.parse import quote

from tunery.runtime.telemetry.trail import current_trail

_CONTEXT: Final[ContextVar[Mapping[str, Any]]] = ContextVar("log context")
_NO_FIELDS: Final[Mapping[str, Any]] = {}
SUBJECT_FIELDS: Final = ("job_id", "attempt")  # those of a message that its log lines carry
TEXT_CHARACTERS_MAX: Final = 4_000
HIDDEN: Final = "***"
#: libraries that log too much at our level
QUIET: Final = {
    "aiobotocore": logging.WARNING,
    "aiokafka": logging.WARNING,
    # It looks for its coordinator again by itself, as at the first start of every Kafka; our hosts
    # say when they wait for Kafka.
    "aiokafka.consumer.group_coordinator": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "boto3": logging.WARNING,
    "botocore": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpcore2": logging.WARNING,
    "httpx": logging.WARNING,
    "httpx2": logging.WARNING,
    "librdkafka": logging.CRITICAL,  # it connects again by itself
    "s3transfer": logging.WARNING,
    "urllib3": logging.ERROR,
    "uvicorn.access": logging.WARNING,
}


class JsonFormatter(logging.Formatter):
    """`{"event": …, "service": …, "level": …, "at": …, fields…}`."""

    def __init__(self, service: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._service = service
        self._spellings = set[str]()
        self.hide(secrets)

    def hide(self, secrets: Iterable[str]) -> None:
        """Replace these texts, too, from now on."""
        self._spellings.update(*map(_spell, filter(None, secrets)))
        # Longest first: a DSN is hidden whole before the password within it.
        longest_first = sorted(self._spellings, key=len, reverse=True)
        self._secrets = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON: the context's fields, then its own.

        Secrets are replaced in texts, never in what queries filter by: names of fields, `service`,
        `level` and `logger` (a password may happen to be the name of a service).
        """
        line: dict[str, Any] = {
            "event": self._clean(record.getMessage()),
            "service": self._service,
            "level": record.levelname.lower(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
        }
        own = getattr(record, "fields", _NO_FIELDS)
        fields = {**current_trail().fields(), **_CONTEXT.get(_NO_FIELDS), **own}
        line |= {name: self._plain(value) for name, value in fields.items()}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["trace"] = self._clean(self.formatException(record.exc_info), keep_end=True)
        return json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)

    def _plain(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        return self._clean(str(value))

    def _clean(self, text: str, *, keep_end: bool = False) -> str:
        """Replace secrets, then cut: a cut secret would no longer be found."""
        text = self._secrets.sub(HIDDEN, text)
        if len(text) <= TEXT_CHARACTERS_MAX:
            return text
        return text[-TEXT_CHARACTERS_MAX:] if keep_end else text[:TEXT_CHARACTERS_MAX] + "…"


def _spell(secret: str) -> set[str]:
    """Ways in which libraries print a secret: plain, and escaped as in JSON, `repr` and URLs."""
    return {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], quote(secret, safe="")}


def configure(
    service: str, level: str, secrets: Iterable[str] = (), out: TextIO | None = None
) -> None:
    """All logging of this process, libraries included, becomes JSON lines on `out` (stdout)."""
    handler = logging.StreamHandler(out or sys.stdout)
    handler.setFormatter(JsonFormatter(service, secrets))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name, least in QUIET.items():
        logging.getLogger(name).setLevel(least)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True


def hide(secrets: Iterable[str]) -> None:
    """Replace these texts in all lines of this process, where it logs as `configure` says."""
    for handler in logging.root.handlers:
        if isinstance(handler.formatter, JsonFormatter):
            handler.formatter.hide(secrets)


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add these fields to every line logged within, by tasks started within, too."""
    token = _CONTEXT.set({**_CONTEXT.get(_NO_FIELDS), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def subject_of(body: object) -> dict[str, Any]:
    """Return a message's fields for log lines: `job_id` and `attempt`, where it has them."""
    values = {name: getattr(body, name, None) for name in SUBJECT_FIELDS}
    return {name: value for name, value in values.items() if value is not None}


def log_event(
    logger: logging.Logger,
    level: int,
    event: str,
    error: BaseException | None = None,
    **fields: Any,
) -> None:
    """Log one event, a dotted name such as "effect.failed", with its fields.

    `error` adds its type and its trace; the fields of `log_context` are added to every line.
    """
    if not logger.isEnabledFor(level):
        return
    info = (type(error), error, error.__traceback__) if error is not None else None
    logger.log(level, event, exc_info=info, extra={"fields": fields})

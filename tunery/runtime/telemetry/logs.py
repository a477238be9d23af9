"""Structured logs: one JSON object a line on stdout, `event` first, never a secret.

An event is a dotted name in the field's terms (effect.row_lease_lost); the rest are fields.
Where they are known, `job_id`, `tenant`, `attempt`, `request_id` and `trace_id` are among them.
Hosts bind what they work on with `log_context`: every line of a job, also a library's,
carries `job_id`, `tenant` and `attempt`.
"""

import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from tunery.runtime.telemetry.trail import current_trail

_CONTEXT: Final[ContextVar[Mapping[str, Any]]] = ContextVar("log context")
_NO_FIELDS: Final[Mapping[str, Any]] = {}
SUBJECT_FIELDS: Final = ("job_id", "attempt")  # those of a message that its log lines carry
TEXT_CHARACTERS_MAX: Final = 4_000
SECRET_CHARACTERS_MIN: Final = 6  # shorter texts would blacken ordinary words
HIDDEN: Final = "***"
#: libraries that log too much at our level
QUIET: Final = {
    "aiobotocore": logging.WARNING,
    "aiokafka": logging.WARNING,
    "asyncio": logging.WARNING,
    "boto3": logging.WARNING,
    "botocore": logging.WARNING,
    "httpcore": logging.WARNING,
    "httpx": logging.WARNING,
    "s3transfer": logging.WARNING,
    "urllib3": logging.ERROR,
    "uvicorn.access": logging.WARNING,
}


class JsonFormatter(logging.Formatter):
    """`{"event": …, "service": …, "level": …, "at": …, fields…}`."""

    def __init__(self, service: str, secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._service = service
        self._secrets = tuple(text for text in secrets if len(text) >= SECRET_CHARACTERS_MIN)

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON: the context's fields, then its own, secrets blackened."""
        line: dict[str, Any] = {
            "event": _cut(record.getMessage()),
            "service": self._service,
            "level": record.levelname.lower(),
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "logger": record.name,
        }
        own = getattr(record, "fields", _NO_FIELDS)
        fields = {**current_trail().fields(), **_CONTEXT.get(_NO_FIELDS), **own}
        line |= {name: _plain(value) for name, value in fields.items()}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["trace"] = self.formatException(record.exc_info)[-TEXT_CHARACTERS_MAX:]
        text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=str)
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[:TEXT_CHARACTERS_MAX] + "…"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float):
        return value
    return _cut(str(value))


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


@contextmanager
def log_context(**fields: Any) -> Iterator[None]:
    """Add these fields to every line logged within, by tasks started within, too."""
    token = _CONTEXT.set({**_CONTEXT.get(_NO_FIELDS), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def subject_of(body: object) -> dict[str, Any]:
    """What log lines about a message say of its job: `job_id` and `attempt`, where it has them."""
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

"""Refuses one command that stops its partition: an operator's order, signed, in the journal."""

import getpass
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from schemas.topics import STREAMS
from tunery.cli.journal.scan import start_of, verify
from tunery.cli.kafka import read_secret
from tunery.local import secrets
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.platform.connections import UNCHECKED
from tunery.runtime.bus.abstract import Log
from tunery.runtime.bus.reading import record_at
from tunery.runtime.bus.signing import UNSIGNED, SenderKeys
from tunery.runtime.bus.signing import operator_keys as signing_keys
from tunery.runtime.ids import new_id
from tunery.runtime.journal.codec import encode
from tunery.runtime.journal.decision import read_command
from tunery.runtime.journal.refusals import OPERATOR, refusal_of, refusing_claim


class Refused(Struct, frozen=True, kw_only=True):
    """The command that was refused, and its place in the journal."""

    stream: str
    partition: int
    offset: int
    command_id: str
    cause: int  # its logical number
    claim: int  # offset of the operator's claim in the journal


def operator_keys(
    folders: DataDir, secret_file: Path | None, environ: Mapping[str, str]
) -> SenderKeys:
    """The keys of an operator, from a file with the secret, else those of the stack.

    None where the installation checks no sender. Raises LocalError.
    """
    if secret_file is not None:
        return signing_keys(read_secret(secret_file), OPERATOR)
    if environ.get("TUNERY_COMMAND_KEYS") == UNCHECKED:
        return UNSIGNED
    if not folders.secrets.is_file():
        raise LocalError(
            f"the order has to be signed, and there is no stack in {folders.root}",
            "name the file with the secret of commands: --secret FILE",
        )
    return replace(secrets.load(folders.secrets).sender_keys(), sender=OPERATOR)


async def refuse(
    log: Log, name: str, partition: int, offset: int, author: str, reason: str, keys: SenderKeys
) -> Refused:
    """Order the owner to refuse the command at this offset of the stream's commands.

    Raises LocalError unless it is the next that the journal has to decide.
    """
    stream = STREAMS[name]
    await start_of(log, stream.commands, partition, offset)
    command = await record_at(log, stream.commands.name, partition, offset)
    (journal,) = await verify(log, name, [partition])
    if journal.bad is not None:
        raise LocalError(
            f"{name}/{partition} is not sound: {journal.bad.why}", "`tunery journal verify`"
        )
    following = journal.cause + 1 - journal.base
    if offset != following:
        was = "was decided already" if offset < following else "is not the next"
        raise LocalError(
            f"command {offset} of {name}/{partition} {was}",
            f"the next one is at offset {following}; the log line `partition.stopped` has the "
            "offset of the command that stops the partition",
        )
    cause = offset + journal.base
    order = refusal_of(command, cause, author, reason)
    claim = refusing_claim(stream, order, author, new_id(), keys)
    writer = await log.writer(stream.journal.name, partition)
    try:
        appended = await writer.append(b"", encode(claim))
    finally:
        await writer.close()
    return Refused(
        stream=name,
        partition=partition,
        offset=offset,
        command_id=read_command(stream, command, cause).id,
        cause=cause,
        claim=appended.offset,
    )


def author() -> str:
    """The operator's name, as the system has it."""
    return f"{getpass.getuser()}@{socket.gethostname()}:{os.getpid()}"

"""The process of a replica, as its agent sees it: what it is given, asks for, and where it answers.

The process has no network and no keys. It answers questions at a socket, to which its agent relays
connections of gateways, and its agent fetches the files of adapters for it.
"""

from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.envelope import Sha256
from tunery.work.engine import EngineModel

FILE_LINE_BYTES_MAX: Final = 16 * 1024
SECRET_BYTES_MAX: Final = 256  # of the line that a connection begins with


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """What the process of a replica is given.

    base: the base model that it answers with; `context_length` is not read
    socket: where it takes questions
    files_socket: where its agent takes requests for files
    models_dir: models in the engine's format, which processes of one node share
    answers_dir: files with tokens of answers, which its agent sends; nobody else writes to it
    threads: of each model
    """

    base: EngineModel
    socket: str
    files_socket: str
    models_dir: str
    answers_dir: str
    threads: int


class FileWanted(Struct, frozen=True):
    """A file of an adapter is wanted.

    blob, sha256: its key in object storage, and the hash of its content.
    """

    blob: str
    sha256: Sha256


class FileFetched(Struct, frozen=True, tag="fetched"):
    """The file lies at `path`, and belongs to the process."""

    path: str


class FileRefused(Struct, frozen=True, tag="refused"):
    """There is no file.

    message: why, for the log.
    """

    message: str


class ReplicaEndpoint(Struct, frozen=True):
    """Where a replica answers, over TLS.

    host, port: of its agent.
    certificate: in PEM; the endpoint has this one, which nobody else signed.
    secret: what a connection has to begin with, as a line.
    """

    host: str
    port: int
    certificate: str
    secret: str


FileReply: TypeAlias = FileFetched | FileRefused
_SPECS: Final = msgspec.json.Decoder(ReplicaSpec)
_WANTED: Final = msgspec.json.Decoder(FileWanted)
_REPLIES: Final[msgspec.json.Decoder[FileReply]] = msgspec.json.Decoder(FileReply)
_ENDPOINTS: Final = msgspec.json.Decoder(ReplicaEndpoint)


def decode_replica_spec(data: bytes) -> ReplicaSpec:
    """Raises msgspec.MsgspecError for anything else."""
    return _SPECS.decode(data)


def encode_file_line(record: FileWanted | FileReply) -> bytes:
    """A record as one line."""
    return msgspec.json.encode(record) + b"\n"


def decode_file_wanted(line: bytes) -> FileWanted:
    """Raises msgspec.MsgspecError for anything else."""
    return _WANTED.decode(line)


def decode_file_reply(line: bytes) -> FileReply:
    """Raises msgspec.MsgspecError for anything else."""
    return _REPLIES.decode(line)


def encode_endpoint(endpoint: ReplicaEndpoint) -> str:
    """An endpoint as text, which is sealed before it leaves its agent."""
    return msgspec.json.encode(endpoint).decode()


def decode_endpoint(text: str) -> ReplicaEndpoint:
    """Raises msgspec.MsgspecError for anything else."""
    return _ENDPOINTS.decode(text)

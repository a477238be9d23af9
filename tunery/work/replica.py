"""The process of a replica, as its agent sees it: what it is given, asks for, and where it answers.

The process has no network and no keys. It answers questions at a socket, to which its agent relays
connections of gateways, and its agent fetches the files of adapters for it.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from schemas.envelope import Sha256
from tunery.work.engine import EngineModel

FILE_LINE_BYTES_MAX: Final = 16 * 1024
SECRET_BYTES_MAX: Final = 256  # of the line that a connection begins with


class ReplicaSpec(Struct, frozen=True, kw_only=True):
    """Spec of the process of a replica."""

    base: EngineModel  # the base model that it answers with; `context_length` is not read
    socket: str  # path at which it takes questions
    files_socket: str  # path at which its agent takes requests for files
    models_dir: str  # models in the engine's format, which processes of one node share
    # folder with token counts, which its agent sends; only the replica writes there
    answers_dir: str
    threads: int  # number of threads of each model


class FileWanted(Struct, frozen=True):
    """A file of an adapter is wanted."""

    # blob, sha256: its key in object storage, and the hash of its content
    blob: str
    sha256: Sha256


class FileFetched(Struct, frozen=True, tag="fetched"):
    """The file lies at `path`, and belongs to the process."""

    path: str


class FileRefused(Struct, frozen=True, tag="refused"):
    message: str  # why, for the log


class ReplicaEndpoint(Struct, frozen=True):
    """Address and credentials of a replica, over TLS."""

    # host, port: address of its agent
    host: str
    port: int
    # self-signed certificate of the endpoint, in PEM; clients accept only this one
    certificate: str
    secret: str  # first line that a client has to send


FileReply: TypeAlias = FileFetched | FileRefused


# these raise msgspec.MsgspecError for anything else
decode_replica_spec: Final = msgspec.json.Decoder[ReplicaSpec](ReplicaSpec).decode


def encode_file_line(record: FileWanted | FileReply) -> bytes:
    return msgspec.json.encode(record) + b"\n"


# these raise msgspec.MsgspecError for anything else
decode_file_wanted: Final = msgspec.json.Decoder[FileWanted](FileWanted).decode
decode_file_reply: Final[Callable[[bytes], FileReply]] = msgspec.json.Decoder(FileReply).decode


def encode_endpoint(endpoint: ReplicaEndpoint) -> str:
    """An endpoint as text, which is sealed before it leaves its agent."""
    return msgspec.json.encode(endpoint).decode()


# these raise msgspec.MsgspecError for anything else
decode_endpoint: Final = msgspec.json.Decoder[ReplicaEndpoint](ReplicaEndpoint).decode

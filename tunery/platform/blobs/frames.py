"""The bytes of an encrypted blob: a header, then frames of AES-256-GCM that can be read one by one.

Each blob has its own key, so nonces are numbers: of the frame, and whether it is the last one.
Frames that are changed, exchanged, left out or cut off at the end do not open. It is the
construction STREAM (Hoang, Reyhanitabar, Rogaway, Vizár 2015), as age uses it.
"""

import os
import re
from typing import Final, NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tunery.platform.seal.abstract import KEY_BYTES, DataKey

FORM: Final = b"tunery-2"
FORMER: Final = b"tunery-1"  # of before folders had keys: read, and not written any more
VERSION_BYTES: Final = 8  # of the data key: what follows its tenant in its name
NAME_BYTES: Final = len(FORM) + VERSION_BYTES
SALT_BYTES: Final = 32
HEADER_BYTES: Final = NAME_BYTES + SALT_BYTES
TAG_BYTES: Final = 16
FRAME_BYTES: Final = 64 * 1024  # of the content; 0.02 % more are stored
STORED_FRAME_BYTES: Final = FRAME_BYTES + TAG_BYTES
LABEL: Final = b"tunery blob"
FOLDER_LABEL: Final = b"tunery blob folder"
SEGMENT: Final = re.compile("[^/]*/|[^/]+")  # of a path: a folder with its slash, or the blob


class FrameBroken(Exception):
    """These are not the bytes that were written here."""


def content_bytes(stored: int) -> int:
    """Return the size of the content of an encrypted blob of this size. Raises FrameBroken."""
    body = stored - HEADER_BYTES
    frames = -(-body // STORED_FRAME_BYTES)
    if body - frames * TAG_BYTES < 0 or frames < 1:
        raise FrameBroken("the blob is too short to be one")
    return body - frames * TAG_BYTES


def version_of(header: bytes) -> bytes:
    """The form of a blob, and the version of the data key that it is encrypted with.

    Raises FrameBroken.
    """
    if len(header) != HEADER_BYTES or not header.startswith((FORM, FORMER)):
        raise FrameBroken("the blob does not begin as one")
    return header[:NAME_BYTES]


class PathKey(NamedTuple):
    """Opens the blob at one path, or those below a folder, and no others: it may be handed to who
    has no data key."""

    version: bytes  # form of the blobs, and version of the data key that it follows from
    secret: bytes


def path_key(key: DataKey, path: str) -> PathKey:
    """The key of a path; where that ends with a slash, the one that those below it follow from.

    Raises ValueError for a data key whose name has no version of VERSION_BYTES.
    """
    version = _version(key)
    root = _derive(key.secret, FOLDER_LABEL + b"\0" + version)
    return narrow(PathKey(FORM + version, root), path)


def narrow(folder: PathKey, rest: str) -> PathKey:
    """The key of a path below a folder, from that of the folder.

    rest: what follows the folder in the path
    """
    secret = folder.secret
    for segment in SEGMENT.findall(rest):
        secret = _derive(secret, FOLDER_LABEL + b"\0" + segment.encode())
    return PathKey(folder.version, secret)


def former_path_key(key: DataKey, path: str) -> PathKey:
    """Opens a blob of the FORMER form at one path. Raises as `path_key` does."""
    version = _version(key)
    info = b"\0".join((LABEL, version, path.encode()))
    return PathKey(FORMER + version, _derive(key.secret, info))


def _version(key: DataKey) -> bytes:
    version = key.key_id.rpartition(".")[2].encode("ascii")
    if len(version) != VERSION_BYTES:
        raise ValueError(f"{key.key_id!r} has no version of {VERSION_BYTES} characters")
    return version


def _derive(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def _cipher(key: PathKey, header: bytes) -> AESGCM:
    """Return the cipher of one blob: its key derives from the path's key and the blob's salt."""
    salt = header[-SALT_BYTES:]
    return AESGCM(HKDF(SHA256(), KEY_BYTES, salt=salt, info=LABEL).derive(key.secret))


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


class FrameWriter:
    """Encrypts content in pieces of any size. The last frame is written by `finish`."""

    def __init__(self, key: PathKey) -> None:
        self._header = key.version + os.urandom(SALT_BYTES)
        self._cipher = _cipher(key, self._header)
        self._number, self._rest = 0, bytearray()
        self._begun = False

    def write(self, content: bytes) -> bytes:
        """Buffer content; return the header, once, and the frames that are complete, encrypted."""
        self._rest += content
        stored = [self._take_header()]
        end = 0
        while len(self._rest) - end > FRAME_BYTES:
            stored.append(self._seal(bytes(self._rest[end : end + FRAME_BYTES]), False))
            end += FRAME_BYTES
        del self._rest[:end]
        return b"".join(stored)

    def finish(self) -> bytes:
        """The end of what is stored."""
        return self._take_header() + self._seal(bytes(self._rest), True)

    def _take_header(self) -> bytes:
        begun, self._begun = self._begun, True
        return b"" if begun else self._header

    def _seal(self, content: bytes, is_last: bool) -> bytes:
        sealed = self._cipher.encrypt(_nonce(self._number, is_last), content, None)
        self._number += 1
        return sealed


class FrameReader:
    """Decrypts what follows the header, in pieces of any size. The last frame is in `finish`."""

    def __init__(self, key: PathKey, header: bytes) -> None:
        self._cipher = _cipher(key, header)
        self._number, self._rest = 0, bytearray()

    def read(self, stored: bytes) -> bytes:
        """Authenticated content, as far as it is known. Raises FrameBroken."""
        self._rest += stored
        content, end = [], 0
        while len(self._rest) - end > STORED_FRAME_BYTES:
            content.append(self._open(bytes(self._rest[end : end + STORED_FRAME_BYTES]), False))
            end += STORED_FRAME_BYTES
        del self._rest[:end]
        return b"".join(content)

    def finish(self) -> bytes:
        """The end of the content. Raises FrameBroken, also for a blob that was cut off."""
        return self._open(bytes(self._rest), True)

    def _open(self, stored: bytes, is_last: bool) -> bytes:
        try:
            content = self._cipher.decrypt(_nonce(self._number, is_last), stored, None)
        except (InvalidTag, ValueError) as error:
            raise FrameBroken(f"frame {self._number} does not open") from error
        self._number += 1
        return content

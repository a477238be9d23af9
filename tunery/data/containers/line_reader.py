"""Reads the physical lines of a binary stream, one by one or many at a time."""

from typing import BinaryIO, Final

from tunery.data.findings.limits import BLOCK_BYTES, MIB

BOM: Final = b"\xef\xbb\xbf"
BLANK: Final = b" \t\r\n"


def skip_line(stream: BinaryIO) -> None:
    """Read to the end of a line that is too long, without keeping it."""
    while (rest := stream.readline(MIB)) and not rest.endswith(b"\n"):
        pass


class LineReader:
    """Reads lines and counts them; the lines read last can be put back.

    number: number of the next line, from 1
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ahead = b""
        self._at = 0
        self.number = 1

    def block(self) -> bytes:
        """Read whole lines of about `BLOCK_BYTES`; empty at the end, or before a longer line."""
        data = self._ahead[self._at :] if self._at < len(self._ahead) else b""
        if len(data) < BLOCK_BYTES:
            data += self._stream.read(BLOCK_BYTES)
        end = data.rfind(b"\n") + 1
        self._ahead, self._at = data, end
        self.number += data.count(b"\n", 0, end)
        return data[:end]

    def put_back(self, data: bytes) -> None:
        """Put back the bytes that the last calls of `block` or `line` returned, joined."""
        self._ahead = data + self._ahead[self._at :]
        self._at = 0
        self.number -= data.count(b"\n")

    def line(self, bytes_max: int) -> bytes:
        """Read one line with its line break, or its first `bytes_max` bytes; empty at the end."""
        end = self._ahead.find(b"\n", self._at, self._at + bytes_max) + 1
        if not end:
            missing = bytes_max - (len(self._ahead) - self._at)
            if missing > 0:
                self._ahead = self._ahead[self._at :] + self._stream.readline(missing)
                self._at = 0
            end = min(len(self._ahead), self._at + bytes_max)
        line = self._ahead[self._at : end]
        self._at = end
        self.number += line.endswith(b"\n")
        return line

    def skip(self) -> None:
        """Skip the rest of a line of which `line` returned only the beginning."""
        end = self._ahead.find(b"\n", self._at) + 1
        if end:
            self._at = end
        else:
            self._ahead, self._at = b"", 0
            skip_line(self._stream)
        self.number += 1

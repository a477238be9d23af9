"""Physical lines of a binary stream, one by one or many at a time."""

from typing import BinaryIO, Final

from tunery.data.findings.limits import BLOCK_BYTES, MIB

BOM: Final = b"\xef\xbb\xbf"
BLANK: Final = b" \t\r\n"


def skip_line(stream: BinaryIO) -> None:
    """Read on to the end of an over-long line without keeping it."""
    while (rest := stream.readline(MIB)) and not rest.endswith(b"\n"):
        pass


class Lines:
    """Lines with their numbers; lines that were looked at can be put back.

    `number`: of the line that comes next, from 1.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._ahead = b""
        self._at = 0
        self.number = 1

    def block(self) -> bytes:
        """Whole lines, about `BLOCK_BYTES`; empty at the end or before a longer line."""
        data = self._ahead[self._at :] if self._at < len(self._ahead) else b""
        if len(data) < BLOCK_BYTES:
            data += self._stream.read(BLOCK_BYTES)
        end = data.rfind(b"\n") + 1
        self._ahead, self._at = data, end
        self.number += data.count(b"\n", 0, end)
        return data[:end]

    def put_back(self, data: bytes) -> None:
        """The bytes that `block` or `line` gave last, in one piece."""
        self._ahead = data + self._ahead[self._at :]
        self._at = 0
        self.number -= data.count(b"\n")

    def line(self, bytes_max: int) -> bytes:
        """One line with its end, or its first `bytes_max` bytes; empty at the end."""
        end = self._ahead.find(b"\n", self._at, self._at + bytes_max) + 1
        if not end:
            missing = bytes_max - (len(self._ahead) - self._at)
            if missing > 0:
                self._ahead = self._ahead[self._at :] + self._stream.readline(missing)
                self._at = 0
            end = min(len(self._ahead), self._at + bytes_max)
        found = self._ahead[self._at : end]
        self._at = end
        self.number += found.endswith(b"\n")
        return found

    def skip(self) -> None:
        """The rest of a line that was longer than `bytes_max`."""
        end = self._ahead.find(b"\n", self._at) + 1
        if end:
            self._at = end
        else:
            self._ahead, self._at = b"", 0
            skip_line(self._stream)
        self.number += 1

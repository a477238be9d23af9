"""Physical lines of a binary stream."""

from typing import BinaryIO, Final

from tunery.data.limits import MIB

BOM: Final = b"\xef\xbb\xbf"
BLANK: Final = b" \t\r\n"


def skip_line(stream: BinaryIO) -> None:
    """Read on to the end of an over-long line without keeping it."""
    while (rest := stream.readline(MIB)) and not rest.endswith(b"\n"):
        pass

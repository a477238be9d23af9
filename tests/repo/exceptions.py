"""What is larger than the walls allow, by name, with its size. This list only shrinks."""

from typing import Final

SIZES: Final[dict[str, int]] = {}

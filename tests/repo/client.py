"""Writes `tunery/client/api.py`, the synchronous client, from the asynchronous one.

    python -m tests.repo.client

A test compares the two, so that a change of only one of them is noticed.
"""

import re
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "tunery" / "client" / "asynchronous.py"
TARGET: Final = ROOT / "tunery" / "client" / "api.py"
HEAD: Final = '"""Calls of the API. Each method is one request; lists come whole, page after page.'
WRITTEN: Final = f"""{HEAD}

Written from `asynchronous.py` by `python -m tests.repo.client`; change it there.
\"""
"""
WORDS: Final = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait asyncio\.sleep\b", "time.sleep"),
    (r"\bat_once\b", "in_threads"),
    (r"\bawait ", ""),
    (r"\basyncio\b", "time"),
    (r"\bAsyncApi\b", "Api"),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsyncBaseTransport\b", "BaseTransport"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"\baiter_(bytes|sse)\b", r"iter_\1"),
    (r"for (\w+) in (.+):\n +yield \1\n", r"yield from \2\n"),
)


def synchronous(source: str) -> str:
    """The same client for callers without an event loop."""
    _, _, rest = source.partition('"""\n\n')
    for word, plain in WORDS:
        rest = re.sub(word, plain, rest)
    rest = rest.replace("import time\nimport hashlib\n", "import hashlib\nimport time\n")
    return f"{WRITTEN}\n{rest}"


if __name__ == "__main__":
    TARGET.write_text(synchronous(SOURCE.read_text()))
    sys.stdout.write(f"{TARGET.relative_to(ROOT)} written\n")

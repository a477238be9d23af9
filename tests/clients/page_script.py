"""Runs the Python below one heading of a page as it is written: `page_script.py PAGE#HEADING`.

Prints what it printed last, as JSON.
"""

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Final

SECTION: Final = r"(?ms)^## {}$(.*?)(?=^## |\Z)"
BLOCK: Final = r"(?ms)^```{}\n(.*?)^```$"


def code_below(page: str, heading: str, language: str = "py") -> str:
    """Return the block of code in the section with this heading. Raises ValueError."""
    section = re.search(SECTION.format(re.escape(heading)), page)
    block = section and re.search(BLOCK.format(language), section[1])
    if not block:
        raise ValueError(f"no {language} below {heading!r}")
    return block[1]


if __name__ == "__main__":
    path, _, heading = sys.argv[1].partition("#")
    code, printed = Path("page.py"), list[object]()
    code.write_text(code_below(Path(path).read_text(encoding="utf-8"), heading), encoding="utf-8")
    runpy.run_path(str(code), {"print": printed.append})
    print(json.dumps({"answer": str(printed[-1])}))

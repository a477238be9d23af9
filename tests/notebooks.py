"""Code of notebooks, without the packages that run notebooks."""

import json
from pathlib import Path


def code_cells(path: Path) -> list[str]:
    """The source of each code cell, in order."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]

"""`python -m tests.repo.outline FOLDER` prints each file below a folder with what it is."""

import ast
import sys
from pathlib import Path


def main(folder: Path) -> None:
    for path in sorted(folder.rglob("*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        print(f"{path.relative_to(folder).as_posix():<40} {text.partition(chr(10))[0]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

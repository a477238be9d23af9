"""`python -m tests.repo.shrink` lowers the numbers of `exceptions.py` to what is left.

It never raises one: a new violation is mended, not listed. `--list RULE [AREA]` prints them.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.repo import documentation, exceptions, mirror, wording
from tests.repo.tree import Tree, Violation, area_of

ROOT: Final = Path(__file__).resolve().parents[2]
FILE: Final = Path(__file__).with_name("exceptions.py")
#: rules with a number of violations for each area, by the name of their list in `exceptions.py`
SHRINKING: Final[Mapping[str, Callable[[Tree], Iterator[Violation]]]] = {
    "IDENTIFIERS": wording.check_identifiers,
    "CLASS_NAMES": wording.check_class_names,
    "LOG_EVENTS": wording.check_log_events,
    "DOCSTRINGS": documentation.check_docstrings,
    "BACK_TICKS": documentation.check_back_ticks,
    "MAPS": documentation.check_maps,
    "TESTS_WITHOUT_SOURCES": mirror.check_tests_have_sources,
    "SOURCES_WITHOUT_TESTS": mirror.check_sources_have_tests,
}
HEAD: Final = '''"""What does not keep a rule yet: each list only shrinks.

SIZES: what is larger than the walls allow, by name, with its size. All others: how many violations
an area still has. `python -m tests.repo.shrink` lowers the numbers to what is left.
"""

from typing import Final

SIZES: Final[dict[str, int]] = {}
'''


def allowed(name: str) -> dict[str, int]:
    """The numbers of a rule's list, by area."""
    numbers: dict[str, int] = getattr(exceptions, name, {})
    return numbers


def shrunk(tree: Tree, name: str, first: bool) -> dict[str, int]:
    """The numbers of a list after it has shrunk. first: the list is new, so all is taken."""
    counts = Counter(area_of(violation.path) for violation in SHRINKING[name](tree))
    before = allowed(name)
    numbers = counts if first else {area: min(n, before.get(area, 0)) for area, n in counts.items()}
    return {area: number for area, number in sorted(numbers.items()) if number}


def write(tree: Tree) -> None:
    text = HEAD
    for name in SHRINKING:
        numbers = shrunk(tree, name, first=not hasattr(exceptions, name))
        rows = "".join(f'    "{area}": {number},\n' for area, number in numbers.items())
        text += f"\n{name}: Final[dict[str, int]] = {{" + (f"\n{rows}" if rows else "") + "}\n"
        sys.stdout.write(f"{name}: {sum(allowed(name).values())} -> {sum(numbers.values())}\n")
    FILE.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> None:
    tree = Tree(ROOT)
    if arguments[:1] == ["--list"]:
        for violation in SHRINKING[arguments[1].upper()](tree):
            if violation.path.startswith(tuple(arguments[2:]) or ""):
                sys.stdout.write(f"{violation}\n")
    else:
        write(tree)


if __name__ == "__main__":
    main(sys.argv[1:])

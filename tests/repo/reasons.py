"""Rules of the reasons on the logs: no field for prose, and no word without its parameter."""

import ast
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Any, Final

from services.gateway import refusals, wording
from tests.repo.tree import SOURCES, SourceFile, Tree, Violation

#: bases of what is on a log
ON_THE_LOG: Final = frozenset({"Message", "Part", "Struct"})
#: names of fields that tempt to prose; a `Reason`, a `Failure` or sealed text may have them
PROSE: Final = frozenset(
    {
        *("advice", "cause", "description", "detail", "details", "error", "explanation"),
        *("failure", "failures", "message", "messages", "note", "problem", "problems"),
        *("reason", "reasons", "summary", "text", "texts", "why", "words"),
    }
)
#: a process's log lines are deleted after a week, and are no journal
NO_LOG: Final = frozenset({"schemas/telemetry.py"})
#: function that makes a reason → the words of its codes
CATALOGUES: Final[Mapping[str, Mapping[Any, str]]] = {
    "waiting": wording.WAITS,
    "skipping": wording.SKIPS,
    "refusing": refusals.REFUSALS,
    "rejecting": wording.FILES,
    "failing": wording.FAILURES,
    "judging": wording.VERDICTS,
    "_parameter_reason": wording.PARAMETERS,
}
#: codes of waits and skipped checkpoints may be there before a planner uses them
ALL_USED: Final = ("refusing", "rejecting", "failing", "judging", "_parameter_reason")
WHERE_NOT: Final = frozenset(
    {
        "schemas/reasons.py",
        "services/gateway/refusals.py",
        "services/gateway/wording.py",
    }
)


def check_prose(tree: Tree) -> Iterator[Violation]:
    """A field of a command, an event or a noun whose name and type invite sentences."""
    for file in tree.files(("schemas",)):
        if file.name in NO_LOG:
            continue
        for node in file.nodes:
            if not isinstance(node, ast.ClassDef) or not _bases(node) & ON_THE_LOG:
                continue
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and _is_prose(field):
                    name = ast.unparse(field.target)
                    text = f"{node.name}.{name} is text: make it a Reason, a Failure, or Sealed"
                    yield file.violation(field, text)


def _bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _is_prose(field: ast.AnnAssign) -> bool:
    if not isinstance(field.target, ast.Name) or field.target.id not in PROSE:
        return False
    names = (node.id for node in ast.walk(field.annotation) if isinstance(node, ast.Name))
    return "str" in names


def check_parameters(tree: Tree) -> Iterator[Violation]:
    """A reason that is made without a parameter that its words name, or a code without words."""
    for file in tree.files(SOURCES):
        if not any(name in file.text for name in CATALOGUES):  # parsing all would take a second
            continue
        makers = {"_parameter_reason"} | _imported(file)
        for node in file.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                catalogue = CATALOGUES.get(node.func.id)
                if catalogue is not None and node.func.id in makers:
                    yield from _missing(file, node, catalogue)


def _imported(file: SourceFile) -> set[str]:
    """Names that a file has from `schemas.reasons`; others may be called the same."""
    return {
        alias.name
        for node in file.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "schemas.reasons"
        for alias in node.names
    }


def _missing(file: SourceFile, call: ast.Call, catalogue: Mapping[Any, str]) -> Iterator[Violation]:
    code = call.args[0] if call.args else None
    if not isinstance(code, ast.Constant):
        return
    words = catalogue.get(str(code.value))
    if words is None:
        yield file.violation(call, f"the code {code.value!r} has no words")
        return
    params = {keyword.arg for keyword in call.keywords}
    named = {name for _, name, _, _ in Formatter().parse(words) if name}
    for name in sorted(named - params if None not in params else ()):
        yield file.violation(call, f"the words of {code.value!r} name {name!r}, which is not given")


def unused_codes(tree: Tree) -> list[str]:
    """Codes with words that no source uses."""
    unused = {str(code) for name in ALL_USED for code in CATALOGUES[name]}
    for file in tree.files(SOURCES):
        if file.name not in WHERE_NOT and any(code in file.text for code in unused):
            unused -= {node.value for node in file.nodes if isinstance(node, ast.Constant)}
    return sorted(unused)

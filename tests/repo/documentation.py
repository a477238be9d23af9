"""Rules of docstrings: there where they are needed, and true as far as a machine can see."""

import ast
import builtins
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from tests.repo.tree import SOURCES, SourceFile, Tree, Violation

LONG_LINES_MIN: Final = 12
BACK_TICKS: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
WORD: Final = re.compile(r"[A-Za-z_]\w*")
#: names of Python and of the outside world that no file of ours has to spell
WELL_KNOWN: Final = frozenset(
    {*dir(builtins), "await", "async", "with", "match", "case", "def", "import", "yield", "for"}
)
FILE_MENTION: Final = re.compile(r"[\w/]+\.py\b")
TABLE_ROW: Final = re.compile(r"^ *`?([a-z_]\w*)(?:\.py|/)?`? {2,}\S", re.MULTILINE)
#: `JobEndedV2` and `JobEnded.v2` are versions of a message that may not be there yet
VERSION: Final = re.compile(r"(?<=[a-z])(V|\.v)\d+$")
GROUPED: Final = ("schemas", "tunery/cli", "tunery/ml")
ENVIRONMENT: Final = re.compile(r"TUNERY_[A-Z_]+")
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Documented: TypeAlias = ast.Module | ast.ClassDef | Function

# --- where a docstring is needed --------------------------------------------------------------


def check_docstrings(tree: Tree) -> Iterator[Violation]:
    """A public function that is long, or that raises, says what it does."""
    for file in tree.files(SOURCES):
        for function in public_functions(file.module.body):
            if ast.get_docstring(function):
                continue
            size = (function.end_lineno or function.lineno) - function.lineno + 1
            raises = any(isinstance(node, ast.Raise) for node in ast.walk(function))
            if size >= LONG_LINES_MIN or raises:
                why = "raises" if raises else f"has {size} lines"
                yield file.violation(function, f"`{function.name}` {why}: it needs a docstring")


def public_functions(body: list[ast.stmt]) -> Iterator[Function]:
    """Functions of a module and methods of its public classes, without functions inside these."""
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from public_functions(node.body)
        elif isinstance(node, Function) and not node.name.startswith("_"):
            yield node


# --- names in back-ticks ----------------------------------------------------------------------


def check_back_ticks(tree: Tree) -> Iterator[Violation]:
    """What a docstring names in back-ticks as an identifier is written in the code, too.

    The code of the file itself is asked first: its names and the words of its texts. Then the
    names that any file defines, and the modules and folders of the tree.
    """
    known = defined_names(tree)
    for file in tree.files(SOURCES):
        here: frozenset[str] | None = None
        for node, text in docstrings(file):
            for name in BACK_TICKS.findall(text):
                if not IDENTIFIER.fullmatch(name):
                    continue
                words = set(WORD.findall(VERSION.sub("", name.removesuffix(".py")))) - WELL_KNOWN
                words = {word for word in words - known if not is_setting(word, known)}
                if words and here is None:
                    here = written_names(file)
                if words - (here or frozenset()):
                    yield file.violation(node, f"there is no `{name}`")


def is_setting(word: str, known: frozenset[str]) -> bool:
    """Whether an environment variable ends with the name of a field, as settings are read."""
    if not ENVIRONMENT.fullmatch(word):
        return False
    parts = word.lower().split("_")
    return any("_".join(parts[start:]) in known for start in range(1, len(parts)))


def docstrings(file: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    for node in file.nodes:
        if isinstance(node, Documented) and (text := ast.get_docstring(node)):
            yield node, text


def defined_names(tree: Tree) -> frozenset[str]:
    """Functions, classes, constants and modules of the whole tree, and what it imports."""
    names: set[str] = set()
    for file in tree.files(SOURCES):
        names.update((*file.parts[:-1], file.stem))
        for node in file.nodes:
            match node:
                case ast.ClassDef(name=name, body=body):
                    names.add(name)
                    names.update(field_names(body))
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    names.add(name)
                case ast.alias(name=name):
                    names.update(name.split("."))
                case _:
                    pass
        names.update(field_names(file.module.body))
    return frozenset(names)


def field_names(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case _:
                continue


def written_names(file: SourceFile) -> frozenset[str]:
    """Every name in the code of a file, and every word of its texts that are no docstrings."""
    documented = {id(text) for text in docstring_constants(file)}
    names: set[str] = set()
    for node in file.nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                names.add(name)
            case ast.keyword(arg=str(name)):
                names.add(name)
            case ast.Constant(value=str(text)) if id(node) not in documented:
                names.update(WORD.findall(text))
            case ast.Constant(value=bytes(data)):
                names.update(WORD.findall(data.decode("latin-1")))
            case _:
                pass
    return frozenset(names)


def docstring_constants(file: SourceFile) -> Iterator[ast.expr]:
    for node in file.nodes:
        if isinstance(node, Documented) and node.body and isinstance(node.body[0], ast.Expr):
            yield node.body[0].value


# --- maps of folders --------------------------------------------------------------------------


def check_maps(tree: Tree) -> Iterator[Violation]:
    """Each file says what it is; `python -m tests.repo.outline FOLDER` prints a folder's files.

    The docstring of `__init__.py` together with the folder's README names no file that is not
    there; in folders of `GROUPED`, where it puts files into groups, it names each one.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for file in tree.files(SOURCES):
        for depth in range(1, len(file.parts)):
            folders["/".join(file.parts[:depth])].add(file.parts[depth].removesuffix(".py"))
        if file.stem != "__main__" and file.text.strip() and not ast.get_docstring(file.module):
            yield file.violation(file.module, "the file does not say what it is")
    for folder, names in sorted(folders.items()):
        path, text = f"{folder}/__init__.py", map_of(tree, folder)
        wanted = names - {"__init__", "__main__"} if folder in GROUPED else set()
        for name in sorted(wanted - set(WORD.findall(text))):
            yield Violation(path, 1, f"the map of {folder} does not name `{name}`")
        for name in sorted(claimed_files(text)):
            if not exists(tree.root, folder, name):
                yield Violation(path, 1, f"the map of {folder} names `{name}`, which is not there")


def map_of(tree: Tree, folder: str) -> str:
    texts = [
        ast.get_docstring(file.module) or ""
        for file in tree.files((folder.partition("/")[0],))
        if file.name == f"{folder}/__init__.py"
    ]
    page = tree.root / folder / "README.md"
    return "\n".join((*texts, page.read_text(encoding="utf-8") if page.is_file() else ""))


def claimed_files(text: str) -> set[str]:
    """Names of files in a map: words that end with `.py`, and the first one of a row in columns."""
    names = {name.removesuffix(".py") for name in FILE_MENTION.findall(text)}
    return names | set(TABLE_ROW.findall(text))


def exists(root: Path, folder: str, name: str) -> bool:
    """Whether it is a path from the folder or from the root, or a file below the folder."""
    file = f"{name}.py"
    return (
        any((root / start / end).exists() for start in (folder, "") for end in (name, file))
        or next((root / folder).rglob(Path(file).name), None) is not None
    )

"""Unit tests stand beside their sources: `tests/unit/a/b/test_c.py` tests `a/b/c.py`."""

import ast
from collections.abc import Iterator

from tests.repo.tree import SOURCES, SourceFile, Tree, Violation


def check_tests_have_sources(tree: Tree) -> Iterator[Violation]:
    """The source is a module, a folder, or one of the modules of a folder named like the test."""
    for file in unit_tests(tree):
        source = source_of(file)
        if not any((tree.root / path).exists() for path in (f"{source}.py", source)):
            yield file.violation(1, f"there is no {source}.py that it could test")


def check_sources_have_tests(tree: Tree) -> Iterator[Violation]:
    """A module with a function that does something has a unit test.

    A folder's test stands for its files.
    """
    tested = {source_of(file) for file in unit_tests(tree)}
    for file in tree.files(SOURCES):
        path = file.name.removesuffix(".py")
        folder = path.rpartition("/")[0]
        if file.stem.startswith("__") or not has_functions(file):
            continue
        if path not in tested and folder not in tested:
            yield file.violation(1, f"there is no tests/unit/{folder}/test_{file.stem}.py")


def unit_tests(tree: Tree) -> Iterator[SourceFile]:
    for file in tree.files(("tests",)):
        if file.parts[1] == "unit" and file.stem.startswith("test_"):
            yield file


def source_of(test: SourceFile) -> str:
    """Path of what a unit test is for, without the suffix."""
    return "/".join((*test.parts[2:-1], test.stem.removeprefix("test_")))


def has_functions(file: SourceFile) -> bool:
    """Whether a module has a function that does something: ports of Protocols have none."""
    return any(
        isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_declared(node)
        for node in file.nodes
    )


def is_declared(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the body is a docstring, `...` or both: a method of a Protocol or an abstract one."""
    return all(
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        for statement in function.body
    )

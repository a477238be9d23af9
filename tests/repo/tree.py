"""The sources of a tree, read and parsed once, whatever number of rules looks at them.

A tree is a folder with the layout of the repository, so the tests can plant violations in one.
"""

import ast
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final

PRODUCT: Final = ("schemas", "services", "tunery")
SOURCES: Final = (*PRODUCT, "simulator", "examples", "bench")
EVERYTHING: Final = (*SOURCES, "tests")


@dataclass(frozen=True)
class Violation:
    """Where, and what is wrong there."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


class SourceFile:
    """One Python file. name: its path in the tree, with slashes."""

    def __init__(self, root: Path, path: Path) -> None:
        self.name = path.relative_to(root).as_posix()
        self.parts = PurePosixPath(self.name).parts
        self.text = path.read_text(encoding="utf-8")

    @property
    def stem(self) -> str:
        return self.parts[-1].removesuffix(".py")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def module(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """In the order of `ast.walk`, which takes longer. Operators and contexts are left out."""
        nodes: list[ast.AST] = [self.module]
        for node in nodes:
            for value in vars(node).values():
                if isinstance(value, list):
                    nodes.extend([child for child in value if isinstance(child, ast.AST)])
                elif isinstance(value, ast.AST) and value._fields:
                    nodes.append(value)
        return nodes

    def violation(self, node: ast.AST | int, text: str) -> Violation:
        line = node if isinstance(node, int) else getattr(node, "lineno", 1)
        return Violation(self.name, line, text)


class Tree:
    """The Python files below `root`, by folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, list[SourceFile]] = {}

    def files(self, folders: Iterable[str] = EVERYTHING) -> Iterator[SourceFile]:
        for folder in folders:
            if folder not in self._folders:
                paths = sorted((self.root / folder).rglob("*.py"))
                self._folders[folder] = [SourceFile(self.root, path) for path in paths]
            yield from self._folders[folder]

    def parse(self) -> None:
        """Parse all files at once. A million nodes without a circle are no work for collections
        of garbage, which would take longer than the parser, and again while other tests run.
        """
        gc.disable()
        for file in self.files():
            _ = file.nodes
        gc.freeze()
        gc.enable()

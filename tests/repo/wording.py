"""Rules of the language: identifiers, class names, log events and beginnings of docstrings.

Functions are verb phrases and values are nouns of the field. A pronoun, a participle or a private
metaphor makes the reader look elsewhere for what is meant.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.repo.tree import SOURCES, SourceFile, Tree, Violation

#: never the whole name of a value, a function, a class or a module
FILLERS: Final = frozenset(
    {
        *("found", "one", "ones", "it", "made", "given", "told", "heard", "waited", "unseen"),
        *("place", "places", "thing", "things", "taken", "nothing"),
    }
)
#: never a word of such a name, as `job_wish` or `CrowdSize`
METAPHORS: Final = frozenset(
    {
        *("told", "heard", "unseen", "wish", "wishes", "wished", "crowd", "crowds", "house"),
        *("town", "towns", "desk", "door", "doors", "room", "rooms"),
        *("whoever", "nobody", "somebody", "everybody"),
    }
)
BOUNDARY: Final = re.compile(r"([a-z0-9])([A-Z])")
EVENT: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
#: first word of a docstring that leaves open what is documented: `That of …`, `It …`
OPENING: Final = re.compile(r"(It|They|He|That|Those|Of|Who)\b")
DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
SENTENCE_WORDS_MIN: Final = 4  # the name of a test is a sentence when it is this long


@cache
def is_banned(name: str) -> bool:
    if name.strip("_").lower() in FILLERS:
        return True
    words = BOUNDARY.sub(r"\1_\2", name).lower().split("_")
    return not METAPHORS.isdisjoint(words)


def check_identifiers(tree: Tree) -> Iterator[Violation]:
    for file in tree.files():
        stems = (*file.parts[:-1], file.stem)
        yield from (
            file.violation(1, f"the module name `{stem}` says nothing")
            for stem in stems
            if is_banned(stem.removeprefix("test_"))
        )
        for node in file.nodes:
            if isinstance(node, NAMING) and (name := declared_name(node)) and is_banned(name):
                yield file.violation(node, f"the name `{name}` says nothing of what it names")


#: what `declared_name` looks into: a quarter of all nodes
NAMING: Final = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.arg, ast.Name, ast.Attribute),
    *(ast.MatchAs, ast.MatchStar),
)


def declared_name(node: ast.AST) -> str:
    """The name that this node gives to something, or ''.

    `given` may be a method: tests are written as given, when, then.
    """
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            if name.startswith("test_") and name.count("_") >= SENTENCE_WORDS_MIN - 1:
                return ""
            return "" if name == "given" else name.removeprefix("test_")
        case ast.ClassDef(name=name) | ast.arg(arg=name):
            return name
        case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            return name
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return name
        case _:
            return ""


def check_class_names(tree: Tree) -> Iterator[Violation]:
    """A public class at the top of a module has a name that no other module's class has."""
    modules: dict[str, list[tuple[SourceFile, ast.ClassDef]]] = defaultdict(list)
    for file in tree.files(SOURCES):
        for node in file.module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append((file, node))
    for name, classes in sorted(modules.items()):
        for file, node in classes[1:]:
            yield file.violation(node, f"{classes[0][0].name} has a class `{name}` too")


def check_log_events(tree: Tree) -> Iterator[Violation]:
    """`log_event(LOG, level, "effect.lease_lost", job_id=…)`: the event is a dotted name."""
    for file in tree.files(SOURCES):
        for node in file.nodes:
            if not isinstance(node, ast.Call) or not is_call_of(node, "log_event"):
                continue
            event = node.args[2] if len(node.args) > 2 else None
            if isinstance(event, ast.Name):
                continue  # a named constant, or a parameter of a function that logs
            if not isinstance(event, ast.Constant) or not EVENT.fullmatch(str(event.value)):
                yield file.violation(node, "a log event is a dotted name such as `lease.lost`")


def check_openings(tree: Tree) -> Iterator[Violation]:
    """A docstring begins with a verb or a noun, as a stranger does not know what `it` is."""
    for file in tree.files():
        for node in file.nodes:
            if not isinstance(node, DOCUMENTED):
                continue
            opening = OPENING.match(ast.get_docstring(node) or "")
            if opening:
                yield file.violation(node, f"the docstring begins with `{opening[1]}`: name it")


def is_call_of(call: ast.Call, name: str) -> bool:
    match call.func:
        case ast.Name(id=called) | ast.Attribute(attr=called):
            return called == name
        case _:
            return False

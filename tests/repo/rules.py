"""Rules of the repository that can be checked. Each is a function from a tree to its violations."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.repo.tree import EVERYTHING, SOURCES, Tree, Violation

FILE_LINES_MAX: Final = 600
MAIN_LINES_MAX: Final = 60
FUNCTION_LINES_MAX: Final = 70

FORBIDDEN_NAMES: Final = frozenset(
    {"utils", "util", "common", "core", "helpers", "helper", "misc", "manager", "managers"}
)
#: the figures of the event core are asked for by this name
NAMED_ALL_THE_SAME: Final = frozenset({"bench/core.py"})
IMPURE_MODULES: Final = frozenset(
    {
        *("time", "random", "secrets", "os", "socket", "asyncio", "threading", "subprocess"),
        *("urllib.request", "http.client", "httpx", "requests", "aiokafka", "asyncpg", "boto3"),
        *("confluent_kafka", "redis", "multiprocessing", "shutil", "tempfile", "glob"),
    }
)
IMPURE_CALLS: Final = frozenset(
    {"open", "input", "print", "now", "utcnow", "today", "uuid1", "uuid4", "getenv", "urandom"}
)


# --- sizes -----------------------------------------------------------------------------------


def sizes(tree: Tree) -> Iterator[tuple[str, int, int, int]]:
    """(name, line, size, limit) of files (`path`) and functions (`path::function`)."""
    for file in tree.files():
        wall = MAIN_LINES_MAX if file.stem == "__main__" else FILE_LINES_MAX
        yield file.name, 1, len(file.lines), wall
        for node in file.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                yield f"{file.name}::{node.name}", node.lineno, size, FUNCTION_LINES_MAX


def check_sizes(tree: Tree) -> Iterator[Violation]:
    for name, line, size, limit in sizes(tree):
        if size > limit:
            path = name.partition("::")[0]
            yield Violation(path, line, f"{name} has {size} lines, the wall is {limit}")


# --- names -----------------------------------------------------------------------------------


def check_names(tree: Tree) -> Iterator[Violation]:
    for file in tree.files():
        for part in (*file.parts[:-1], file.stem):
            if part.lower() in FORBIDDEN_NAMES and file.name not in NAMED_ALL_THE_SAME:
                yield file.violation(1, f"the name `{part}` tells nothing")


# --- purity ----------------------------------------------------------------------------------


#: packages of `tunery` that only compute
PURE_PACKAGES: Final = frozenset(
    ("tunery", name) for name in ("billing", "gate", "graders", "plan", "work")
)


def is_pure(relative: Path) -> bool:
    """schemas/, tunery/{billing,gate,graders,plan,work}/, in services domain/, react and project
    (a module or a folder), in the gateway the domain/ of each subject, tables/ and projections/.
    """
    parts = relative.with_suffix("").parts
    if parts[0] == "schemas" or parts[:2] in PURE_PACKAGES:
        return True
    if parts[:2] == ("services", "gateway"):
        return len(parts) > 4 and parts[3] in {"domain", "tables", "projections"}
    return parts[0] == "services" and len(parts) > 2 and parts[2] in {"domain", "react", "project"}


def check_purity(tree: Tree) -> Iterator[Violation]:
    """No clock, randomness, environment, network, files or async where everything is a fold."""
    for file in tree.files(SOURCES):
        if is_pure(Path(file.name)):
            for node in file.nodes:
                if cause := impurity(node):
                    yield file.violation(node, f"{cause} in a pure module")


def impurity(node: ast.AST) -> str:
    match node:
        case ast.Import(names=names):
            bad = [alias.name for alias in names if is_impure(alias.name)]
            return f"import of {', '.join(bad)}" if bad else ""
        case ast.ImportFrom(module=str(module), names=names):
            bad = [alias.name for alias in names if is_impure(f"{module}.{alias.name}")]
            return f"import from {module}" if bad else ""
        case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
            return "async"
        case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
            return f"call of {name}()"
        case ast.Call(func=ast.Attribute(attr=name)) if name in IMPURE_CALLS:
            return f"call of {name}()"
        case _:
            return ""


def is_impure(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:length]) in IMPURE_MODULES for length in range(1, len(parts) + 1))


# --- services are not started by each other's name ------------------------------------------------

SERVICE_NAME: Final = re.compile(r"services\.(\w+)(\.\w+)*")


def check_service_names(tree: Tree) -> Iterator[Violation]:
    """A string that names a module of another service goes around the import contracts."""
    for file in tree.files(("services",)):
        for node in file.nodes:
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            name = SERVICE_NAME.fullmatch(node.value)
            if name is not None and name[1] != file.parts[1]:
                text = f"`{node.value}` is another service: hand it a command or a spec"
                yield file.violation(node, text)


# --- suppressions, leftovers, tests ------------------------------------------------------------

SUPPRESSION: Final = re.compile(r"#\s*(type: ignore|noqa|pragma:|ruff: noqa)")
WITH_REASON: Final = re.compile(
    r"#\s*(type: ignore\[[\w, -]+\]|noqa: [A-Z0-9, ]+|pragma: [\w ]+"
    r"|ruff: noqa: [A-Z0-9, ]+)\s+#\s+\S+"
)
LEFTOVER: Final = re.compile(r"#.*\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")
SKIPPING: Final = re.compile(r"pytest\.(skip|importorskip|xfail)\(|mark\.(skip|skipif|xfail)\b")


def lines(tree: Tree, folders: Sequence[str] = EVERYTHING) -> Iterator[tuple[str, int, str]]:
    for file in tree.files(folders):
        for number, line in enumerate(file.lines, 1):
            yield file.name, number, line


def check_suppressions(tree: Tree) -> Iterator[Violation]:
    """`# noqa: S608  # our own name`: the rule by name, and the reason."""
    for name, number, line in lines(tree):
        if SUPPRESSION.search(line) and not WITH_REASON.search(line):
            yield Violation(name, number, "a suppression names its rule and its reason")


def check_leftovers(tree: Tree) -> Iterator[Violation]:
    for name, number, line in lines(tree):
        if LEFTOVER.search(line):
            yield Violation(name, number, "write the issue, not a note in the source")


def check_skips(tree: Tree) -> Iterator[Violation]:
    """A missing server is a failure; only what needs a GPU may skip."""
    for name, number, line in lines(tree, ("tests",)):
        if SKIPPING.search(line) and "gpu" not in line.lower():
            yield Violation(name, number, "only the gpu mark may skip")


KAFKA_CLIENTS: Final = frozenset({"aiokafka", "confluent_kafka"})
#: without a public way: aiokafka issues 1013 and 1101; unit tests of producers fail with the names
KAFKA_PRIVATE: Final = {"tunery/platform/bus/kafka_producer.py": frozenset({"_closed", "_sender"})}


def check_private_kafka_names(tree: Tree) -> Iterator[Violation]:
    """A file that imports a client of Kafka uses no private name but its own."""
    for file in tree.files():
        imported = [name for node in file.nodes for name in imported_names(node)]
        if not any(name.partition(".")[0] in KAFKA_CLIENTS for name in imported):
            continue
        for node in file.nodes:
            used = [
                part
                for name in imported_names(node)
                if name.partition(".")[0] in KAFKA_CLIENTS
                for part in name.split(".")
            ]
            if isinstance(node, ast.Attribute) and not (
                isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            ):
                used.append(node.attr)
            for name in used:
                if is_private(name) and name not in KAFKA_PRIVATE.get(file.name, ()):
                    yield file.violation(node, f"{name} is private: use the client's public API")


def imported_names(node: ast.AST) -> list[str]:
    """Names that a statement imports, with those of their packages."""
    match node:
        case ast.Import(names=names):
            return [alias.name for alias in names]
        case ast.ImportFrom(module=str(module), names=names):
            return [f"{module}.{alias.name}" for alias in names]
        case _:
            return []


def is_private(name: str) -> bool:
    return name == "cimpl" or (name.startswith("_") and not name.endswith("__"))


#: what says in its name that it fails: `until` and `gone` wait for a state, up to a limit
CHECKING: Final = (
    *("assert", "check", "expect", "verify", "raises", "warns", "prove"),
    *("until", "gone"),
)


def check_assertions(tree: Tree) -> Iterator[Violation]:
    """A test asserts, or calls what says in its name that it does."""
    for file in tree.files(("tests",)):
        if not file.stem.startswith("test_"):
            continue
        for node in file.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_") and not asserts(node):
                yield file.violation(node, f"{node.name} asserts nothing")


def asserts(function: ast.AST) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Assert():
                return True
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
                if name.lstrip("_").startswith(CHECKING):
                    return True
            case _:
                continue
    return False


# --- folders and hosts --------------------------------------------------------------------------

FOLDER: Final = re.compile(r"(?<![\w.~$}/-])/(work|root|home/(?!someone/)[a-z]\w*|Users/\w+)/")
# hosts in two pieces, so that the rule does not break itself
REGISTRIES: Final = (
    ("py", "pi.org"),
    ("python", "hosted.org"),
    ("ma", "ven.org"),
    ("repo1.ma", "ven"),
    ("proxy.go", "lang.org"),
    ("np", "mjs."),
)
HOSTS: Final = (
    *(left + right for left, right in REGISTRIES),
    *("--index-url", "--extra-index-url", "--find-links"),
)
LOCKS: Final = ("requirements.lock", "tunery/local/jars.lock")
BINARY_SUFFIXES: Final = frozenset({".png", ".jpg", ".gif", ".ico", ".woff2", ".gz", ".parquet"})


def check_folders_and_hosts(root: Path, tracked: Sequence[str]) -> Iterator[Violation]:
    """No path of a particular machine, no registry's address; no address at all in a lock file."""
    for name in tracked:
        path = root / name
        if path.suffix in BINARY_SUFFIXES or not path.is_file() or name.startswith("tests/repo/"):
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if name not in LOCKS and not FOLDER.search(text) and not names_a_host(text):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if FOLDER.search(line):
                yield Violation(name, number, "a path of a particular machine")
            if names_a_host(line):
                yield Violation(name, number, "the address of a package registry")
            if name in LOCKS and "://" in line:
                yield Violation(name, number, "an address in a lock file")


def names_a_host(text: str) -> bool:
    lower = text.lower()
    return any(host in lower for host in HOSTS)


# --- commands in the documentation ---------------------------------------------------------------

CONSOLE: Final = re.compile(r"^```console run\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND: Final = re.compile(r"^\$ (.+?)(?:\s+#.*)?$", re.MULTILINE)
INLINE: Final = re.compile(r"`((?:tunery|make) [^`]+)`")
PAGES: Final = ("*.md", "docs/**/*.md", "services/*/README.md", "examples/*.md")


def documented_commands(root: Path) -> Iterator[tuple[str, int, str]]:
    """(file, line, command): each `$ …` line of a block that opens with ```console run, and each
    command of ours between single backticks.
    """
    for path in sorted(page for pattern in PAGES for page in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        commands = [
            (block.start(1) + command.start(), command[1])
            for block in CONSOLE.finditer(text)
            for command in COMMAND.finditer(block[1])
        ]
        commands += [(inline.start(), inline[1]) for inline in INLINE.finditer(text)]
        for start, command in sorted(commands):
            yield path.relative_to(root).as_posix(), text.count("\n", 0, start) + 1, command


def check_documented(
    root: Path, problem_of: Mapping[str, Callable[[list[str]], str]]
) -> Iterator[Violation]:
    """`problem_of` maps a program to a function from its arguments to what is wrong, or ''."""
    for name, line, command in documented_commands(root):
        words = [word for word in command.split() if not re.match(r"^[A-Z_]+=", word)]
        program = Path(words[0]).name if words else ""
        check = problem_of.get(program)
        if check is None:
            yield Violation(name, line, f"`{program}` is no program that we document")
        elif problem := check(words[1:]):
            yield Violation(name, line, problem)


def make_targets(root: Path) -> set[str]:
    text = (root / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))

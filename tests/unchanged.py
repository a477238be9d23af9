"""A plugin of pytest: files of tests whose last result still holds are left out, and counted.

    pytest -p tests.unchanged tests/unit

A result holds while all that it came from is the same: the file, the modules that it imports and
those that they import, modules that one of them names, because it may start them as processes, the
options of the run, every file of the repository that is neither Python nor a page, and the pages
where a test reads one. Tests of `tests/repo` read the whole tree, so they always run. When all
tests of a file have passed, an empty file is made whose name is the digest of all that.

`make check` uses this; `make check FULL=1` and `make test` run everything.
"""

import hashlib
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

import grimp
import pytest

ROOT: Final = Path(__file__).resolve().parents[1]
MEMORY: Final = ".pytest_unchanged"
PACKAGES: Final = ("schemas", "services", "tunery", "simulator", "examples", "bench", "tests")
# A string that is a module; or, before a brace, the package of all that may be meant. A topic is
# called `tunery.{stream}`, so that alone names no module.
NAMED: Final = re.compile(
    rf"""(?:(?<=["'])|(?<=-m ))(?:(?:{"|".join(PACKAGES)})(?:\.\w+)+(?:\.{{)?|services\.{{)"""
)
ALWAYS: Final = "tests/repo/"
PAGES: Final = (".md", ".ipynb")
KEPT_S: Final = 30 * 86_400


class Dependencies:
    """What the results of tests depend on.

    files: names of all files of the repository below `root`, with slashes
    imports: by module, the modules that it imports itself
    """

    def __init__(
        self, root: Path, files: Iterable[str], imports: Mapping[str, Iterable[str]]
    ) -> None:
        self._root = root
        self._imports = imports
        names = sorted(files)
        self._modules = {module_of(name): name for name in names if name.endswith(".py")}
        self._pages = [name for name in names if name.endswith(PAGES)]
        self._others = [name for name in names if not name.endswith((".py", *PAGES))]
        self._texts: dict[str, str] = {}
        self._digests: dict[str, bytes] = {}
        self._direct: dict[str, set[str]] = {}

    def digest(self, name: str, options: str) -> str:
        """Hash all that the result of a test file depends on. options: of the test run."""
        modules = sorted(self.of_file(name))
        texts = [self._text(module) for module in modules if module.startswith("tests.")]
        reads_pages = any(page in text for page in PAGES for text in texts)
        digest = hashlib.sha256(self._digest_of_others + options.encode())
        digest.update(self._digest_of_pages if reads_pages else b"")
        for module in modules:
            digest.update(self._digest_of_module(module))
        return digest.hexdigest()

    def of_file(self, name: str) -> set[str]:
        """The modules that a file of tests depends on, itself among them."""
        folders = [folder.as_posix() for folder in Path(name).parents]
        configuring = {module_of(f"{folder}/conftest.py") for folder in folders}
        # What else a conftest imports serves tests with servers, which are no quick tests.
        helping = _reached(
            configuring & self._modules.keys(),
            lambda module: {other for other in self._imports[module] if other.startswith("tests.")},
        )
        return helping | _reached({module_of(name)}, self._depended)

    @cached_property
    def _digest_of_others(self) -> bytes:
        return self._digest_of(self._others)

    @cached_property
    def _digest_of_pages(self) -> bytes:
        return self._digest_of(self._pages)

    def _digest_of_module(self, module: str) -> bytes:
        if module not in self._digests:
            content = f"{module}\n{self._text(module)}".encode()
            self._digests[module] = hashlib.sha256(content).digest()
        return self._digests[module]

    def _digest_of(self, names: Iterable[str]) -> bytes:
        digest = hashlib.sha256(sys.version.encode())
        for name in names:
            content = (self._root / name).read_bytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.digest()

    def _text(self, module: str) -> str:
        if module not in self._texts:
            self._texts[module] = (self._root / self._modules[module]).read_text(encoding="utf-8")
        return self._texts[module]

    def _depended(self, module: str) -> set[str]:
        """What it imports, the packages of that, and what it names."""
        if module not in self._direct:
            direct = set(self._imports.get(module, ()))
            for name in NAMED.findall(self._text(module)):
                if name.endswith("{"):
                    direct |= {other for other in self._modules if other.startswith(name[:-1])}
                else:  # `python -m` of a package runs its __main__
                    direct |= {name, f"{name}.__main__"} & self._modules.keys()
            packages = {package for name in direct for package in _prefixes(name)}
            self._direct[module] = packages & self._modules.keys()
        return self._direct[module]


def module_of(name: str) -> str:
    """The module of a Python file: `tunery/ml/base.py` is `tunery.ml.base`."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _prefixes(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _reached(first: Iterable[str], step: Callable[[str], set[str]]) -> set[str]:
    reached = set(first)
    rest = list(reached)
    while rest:
        new = step(rest.pop()) - reached
        reached |= new
        rest += new
    return reached


def dependencies_of(root: Path) -> Dependencies:
    """Read the imports of a checkout. Raises OSError without git, CalledProcessError outside."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    files = [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]
    graph = grimp.build_graph(*PACKAGES, cache_dir=str(root / ".import_linter_cache"))
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    return Dependencies(root, files, imports)


class Unchanged:
    """Leaves out files whose tests have passed before, and remembers those that pass now.

    options: what else the result depends on
    """

    def __init__(self, root: Path, dependencies: Dependencies, options: str) -> None:
        self._root, self._dependencies, self._options = root, dependencies, options
        self._memory = root / MEMORY
        self._results: dict[str, Path] = {}  # where that of a file is remembered
        self._left_out: set[str] = set()
        self._collected: set[str] = set()
        self._failed: set[str] = set()

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave a file out, unread, when its result holds."""
        name = collection_path.relative_to(self._root).as_posix()
        if not collection_path.name.startswith("test_") or name.startswith(ALWAYS):
            return None
        self._results[name] = self._memory / self._dependencies.digest(name, self._options)
        if not self._results[name].is_file():
            return None
        self._left_out.add(name)
        return True

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._collected = {item.nodeid.partition("::")[0] for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.passed:
            self._failed.add(report.nodeid.partition("::")[0])

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Remember the files without a failure, unless the run was ended before its end."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._left_out:
            session.exitstatus = pytest.ExitCode.OK
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            return
        self._memory.mkdir(exist_ok=True)
        for old in self._memory.iterdir():
            if time.time() - old.stat().st_mtime > KEPT_S:
                old.unlink(missing_ok=True)
        for name in (self._collected - self._failed) & self._results.keys():
            self._results[name].touch()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left_out:
            terminalreporter.write_line(
                f"{len(self._left_out)} files of tests left out, {len(self._collected)} run: what"
                " the results came from has not changed (FULL=1 runs all)"
            )


def pytest_configure(config: pytest.Config) -> None:
    options = f"{config.option.markexpr} {config.option.keyword}"
    try:
        dependencies = dependencies_of(ROOT)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"all tests run: what has changed is not known ({problem})")
        return
    config.pluginmanager.register(Unchanged(ROOT, dependencies, options))

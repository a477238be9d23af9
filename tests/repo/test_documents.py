"""Indexes list what is there, and links lead somewhere."""

import ast
import asyncio
import re
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from schemas.account import DeliveryDue, WebhookEvent
from schemas.sealed import Sealed
from services.notifier.domain.message import body
from services.notifier.effect import signed_headers
from tests.notebooks import code_cells
from tests.repo import access, topics

ROOT: Final = Path(__file__).resolve().parents[2]
DECISIONS: Final = ROOT / "docs" / "decisions"
PYTHON: Final = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\]\(([^)#:]+)\)")
FOLDERS: Final = "docs|examples|bench|infra|schemas|services|simulator|tests|tunery"
PATH: Final = re.compile(rf"`((?:{FOLDERS})/[\w./-]+)`")
TRAINING_PACKAGES: Final = re.compile(
    r"^(?:from|import) (?:torch|transformers|peft|trl)\b", re.MULTILINE
)
MODULE: Final = re.compile(rf"python -m ((?:{FOLDERS})[\w.]*)")


def test_the_page_of_topics_is_that_of_the_catalogue() -> None:
    assert topics.PAGE.read_text(encoding="utf-8") == topics.page(), "python -m tests.repo.topics"


def test_the_page_of_access_is_that_of_the_table() -> None:
    assert access.PAGE.read_text(encoding="utf-8") == access.page(), "python -m tests.repo.access"


def test_decisions_are_numbered_without_gaps_and_listed_by_their_titles() -> None:
    records = sorted(DECISIONS.glob("[0-9]*.md"))
    numbers = [f"{number:04}" for number in range(1, len(records) + 1)]
    assert [record.name[:4] for record in records] == numbers
    listed = (DECISIONS / "README.md").read_text(encoding="utf-8").splitlines()
    for record in records:
        number, title = record.read_text(encoding="utf-8").splitlines()[0][2:].split(": ", 1)
        assert f"* [{number}]({record.name}) {title}" in listed


def test_links_between_documents_lead_somewhere() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "llms.txt", *ROOT.glob("docs/**/*.md")]
    pages += ROOT.glob("services/*/README.md")
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_every_page_of_docs_is_in_its_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    unlisted = {
        page for page in pages if not page.startswith("decisions/") and f"({page})" not in index
    }
    assert unlisted == {"README.md"}


def test_every_service_has_a_page() -> None:
    services = [path.parent for path in ROOT.glob("services/*/__main__.py")]
    assert len(services) == 12
    assert [page.name for page in services if not (page / "README.md").is_file()] == []


def python_blocks() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md")]
    return [
        (page.relative_to(ROOT).as_posix(), block)
        for page in pages
        for block in PYTHON.findall(page.read_text(encoding="utf-8"))
    ]


#: pages whose packages are in an environment of their own, where this test runs them
RUN_ELSEWHERE: Final = {"docs/how-to/own-loop.md": "tests/e2e/shared/test_tinker.py"}


def with_mark(page: str, block: str) -> Any:
    """Imports of a training's packages take ten seconds, so `make test` tries them."""
    marks = [pytest.mark.train] if TRAINING_PACKAGES.search(block) else []
    return pytest.param(page, block, marks=marks)


@pytest.mark.parametrize(
    ("page", "block"),
    [with_mark(page, block) for page, block in python_blocks() if page not in RUN_ELSEWHERE],
)
def test_python_in_documents_compiles_and_imports_what_is_there(page: str, block: str) -> None:
    tree = ast.parse(block, page)
    imports: list[ast.stmt] = [
        page for page in tree.body if isinstance(page, ast.Import | ast.ImportFrom)
    ]
    namespace: dict[str, object] = {}
    exec(compile(ast.Module(imports, []), page, "exec"), namespace)  # noqa: S102  # our own documents
    assert len(namespace) > len(imports)  # builtins, and a name for each


def test_first_hour_s14_the_tutorial_of_own_data_shows_its_notebook() -> None:
    """A test of tests/e2e runs the notebook."""
    text = (ROOT / "docs/tutorials/own-data.md").read_text(encoding="utf-8")
    shown = re.findall(r"^```py(?:thon)?\n(.*?)\n```$", text, re.MULTILINE | re.DOTALL)
    assert shown == code_cells(ROOT / "examples/own_data.ipynb")


def test_the_data_guide_checks_a_file_as_it_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    block = dict(python_blocks())["docs/reference/data.md"]
    exec(compile(block, "docs/reference/data.md", "exec"), {})  # noqa: S102  # our own document
    assert capsys.readouterr().out.startswith("rejected")


def test_the_webhook_guides_receiver_verifies_what_the_notifier_signs() -> None:
    from openai import InvalidWebhookSignatureError  # a second of import, for this test alone

    block = dict(python_blocks())["docs/how-to/webhooks.md"]
    namespace: dict[str, Any] = {}
    exec(compile(block, "docs/how-to/webhooks.md", "exec"), namespace)  # noqa: S102  # our own document
    now = int(time.time())
    due = DeliveryDue(
        delivery_id="del_1",
        endpoint_id="we_1",
        url=Sealed(key_id="k", nonce=b"n", ciphertext=b"c"),
        secret_version=1,
        event=WebhookEvent(
            event_id="evt_1",
            event_type="fine_tuning.job.succeeded",
            object_id="ftjob-1",
            created_at=1_000 * now,
        ),
    )
    payload = body(due)
    secret = namespace["client"].webhook_secret
    headers = signed_headers(due, payload, [secret], 1_000 * now)
    assert namespace["receive"](payload, headers) == ("fine_tuning.job.succeeded", "ftjob-1")
    forged = signed_headers(due, payload, [secret[:-4] + "AAA="], 1_000 * now)
    with pytest.raises(InvalidWebhookSignatureError):
        namespace["receive"](payload, forged)
    namespace["client"].close()


def test_the_tutorial_of_a_stream_shows_the_program_and_its_output(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "tutorials" / "first-stream.md").read_text(encoding="utf-8")
    program = (ROOT / "examples" / "first_stream.py").read_text(encoding="utf-8").splitlines()
    shown = "".join(PYTHON.findall(page)).splitlines()
    assert [line for line in shown if line] == [line for line in program if line]
    assert len(program) <= 140
    monkeypatch.chdir(ROOT)
    asyncio.run(import_module("examples.first_stream").run())
    expected = re.escape(page.partition("```text\n")[2].partition("```")[0])
    assert re.fullmatch(expected.replace("…", ".+"), capsys.readouterr().out)


def test_files_and_modules_that_documents_name_exist() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("services/*/README.md")]
    texts = {page.relative_to(ROOT): page.read_text(encoding="utf-8") for page in pages}
    files = [(page, path) for page, text in texts.items() for path in PATH.findall(text)]
    modules = [
        (page, module.rstrip(".").replace(".", "/"))
        for page, text in texts.items()
        for module in MODULE.findall(text)
    ]
    absent = [
        f"{page}: {path}"
        for page, path in [*files, *modules]
        if not ((ROOT / path).exists() or (ROOT / f"{path}.py").exists())
    ]
    assert absent == []

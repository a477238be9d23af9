"""An import as a program, which a server starts: `read FOLDER`, `plan FOLDER`, then `ask FOLDER`.

Orders come from standard input as JSON: the account and its key, or the base models that are there.
`read` and `ask` print a line of JSON for each line of progress. `plan` parses rows, and needs no
network; it leaves `import.json`, and the questions that `ask` puts to the old models. Where one
fails, its last line is an `error`; `again`: it may go on later.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from services.gateway.imports.domain.program import ANSWERS, ASKED, OUTCOME
from tunery.data.tokens.chunks import write_atomically
from tunery.exit_kit.account import AGAIN, OpenAIAccount
from tunery.exit_kit.folder import ExportFolder, read, write
from tunery.exit_kit.kept import kept_rows
from tunery.exit_kit.others import AZURE_VERSION, AzureAccount, TogetherAccount
from tunery.exit_kit.plan import keep_plan, plan_account, replacements
from tunery.exit_kit.reading import read_account
from tunery.exit_kit.teacher import AnswerPrice, AskedJob, Teacher, asked_jobs, prices
from tunery.local.errors import LocalError

QUESTIONS: Final = "questions.json"


def warm(_folder: Path) -> None:
    """Load nothing: this program starts anew for each import."""


def run(command: str, root: str) -> None:
    """Do one part of an import, and say how it ended by the exit status."""
    try:
        folder, order = ExportFolder(Path(root)), json.loads(sys.stdin.readline())
        with folder.locked():
            match command:
                case "read":
                    read_into(folder, order)
                case "plan":
                    plan_in(folder, order)
                case _:
                    ask_from(folder, order)
    except LocalError as error:
        text = str(error.what).replace(root, "the server's folder")
        _print(error=text, again=error.fix is not None and AGAIN in error.fix)
        raise SystemExit(1) from None
    except OSError as error:
        _print(error=f"the server cannot store it: {error.strerror}", again=False)
        raise SystemExit(1) from None


def read_into(folder: ExportFolder, order: Mapping[str, Any]) -> None:
    """Read an account into a folder. Raises LocalError, OSError."""
    with _account(order) as account:
        read_account(account, folder, lambda text: _print(progress=text), order["bytes_max"])


def plan_in(folder: ExportFolder, order: Mapping[str, Any]) -> None:
    """Plan what was read. Raises LocalError, OSError."""
    kept = kept_rows(folder)
    planned = plan_account(folder, kept, replacements(None), order["here"])
    keep_plan(folder, planned)
    if order["asks"]:
        write(folder.root / QUESTIONS, msgspec.to_builtins(asked_jobs(planned)))
    of_account = read(folder.root / "manifest.json", {})
    outcome = {
        "files": of_account["files"],
        "missing": of_account["missing"],
        "kept": msgspec.to_builtins(kept, enc_hook=str),
        "jobs": msgspec.to_builtins(planned, enc_hook=str),
    }
    write(folder.root / OUTCOME, outcome)


def ask_from(folder: ExportFolder, order: Mapping[str, Any]) -> None:
    """Ask the old models what was planned, and leave their answers. Raises LocalError, OSError."""
    asked = msgspec.convert(read(folder.root / QUESTIONS, []), list[AskedJob])
    own = msgspec.convert(order["prices"], list[AnswerPrice], strict=False)
    teacher = Teacher(folder, asked, [*own, *prices(None)])
    with _account(order) as account:
        teacher.ask(account, order["budget_micro"], lambda text: _print(progress=text))
    lines = [
        {
            "job_id": job.job_id,
            "model": job.model,
            "messages": question.messages,
            "tools": question.tools,
            "reference": question.reference,
            "answer": teacher.ledger.answers[job.model, question.id],
        }
        for job in asked
        for question in job.questions
        if (job.model, question.id) in teacher.ledger.answers
    ]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    write_atomically(folder.root / ANSWERS, text.encode())
    write(folder.root / ASKED, msgspec.to_builtins(teacher.outcome()))


def _account(order: Mapping[str, Any]) -> OpenAIAccount:
    key, url = order["key"], order["url"]
    match order["source"]:
        case "azure":
            version = order["api_version"] or AZURE_VERSION
            return AzureAccount(key, url, order["deployments"], version)
        case "together":
            return TogetherAccount(key, url)
        case _:
            return OpenAIAccount(key, url)


def _print(**line: Any) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    run(*sys.argv[1:])

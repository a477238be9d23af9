"""`tunery import openai` against a stand-in of that account."""

import errno
import hashlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner, Result

from tests.unit.tunery.cli.scripted_api import ScriptedApi, refusal
from tunery.cli.main import main
from tunery.exit_kit.stand_in import KEY, AccountStub, account_stub, rows

ROOT: Final = Path(__file__).parents[4]
PAGE: Final = ROOT / "docs/how-to/import-account.md"
WAIT_S_MAX: Final = 120.0
MIB: Final = 1024 * 1024


@pytest.fixture
def stub() -> Iterator[AccountStub]:
    with account_stub() as account:
        yield account


def environment(tmp_path: Path, key: str = KEY) -> dict[str, str | None]:
    """Run without a stack and without the developer's own variables."""
    return {
        "OPENAI_EXPORT_KEY": key,
        "TUNERY_DATA_DIR": str(tmp_path / "no-stack"),
        **dict.fromkeys(("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_ORG_ID")),
        "OPENAI_PROJECT_ID": None,
        "COLUMNS": "300",
    }


def run(stub: AccountStub, tmp_path: Path, *words: str, key: str = KEY) -> Result:
    command = ["import", "openai", "--to", str(tmp_path / "acme"), "--base-url", stub.url, *words]
    return CliRunner().invoke(main, command, env=environment(tmp_path, key))


def read(stub: AccountStub, tmp_path: Path, *words: str) -> dict[str, Any]:
    result = run(stub, tmp_path, "--json", *words)
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_exit_kit_reads_files_and_jobs_and_writes_a_recipe_for_each(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.add_file("file-v", rows(11))
    stub.add_job("ftjob-1", "file-a", validation_file="file-v")
    stub.add_job("ftjob-2", "file-a", status="failed", fine_tuned_model=None)
    result = read(stub, tmp_path)
    folder = tmp_path / "acme"
    assert {item["id"]: item["sha256"] for item in result["files"]} == {
        "file-a": hashlib.sha256(rows()).hexdigest(),
        "file-v": hashlib.sha256(rows(11)).hexdigest(),
    }
    assert (folder / "files/file-a.jsonl").read_bytes() == rows()
    job = json.loads((folder / "jobs/ftjob-1.json").read_text())
    assert job["events"][0]["message"] == "The job has successfully completed"
    assert job["checkpoints"][0]["metrics"]["train_loss"] == 0.5
    failed, done = result["plan"]
    assert failed["recipe_path"] is None
    assert failed["reasons"] == ["it is failed there, and has no model to replace"]
    assert done["recipe"] == {
        "version": 1,
        "model": "qwen2.5-7b-instruct",
        "training_file": "../files/file-a.jsonl",
        "validation_file": "../files/file-v.jsonl",
        "training": {"n_epochs": 3},
        "seed": 7,
        "suffix": "faq",
        "metadata": {"team": "search", "openai_job": "ftjob-1"},
    }
    assert done["problems"] == []
    text = Path(done["recipe_path"]).read_text()
    assert "# batch_size 1: there it counts rows, here packed rows of a step" in text
    assert "`tunery base add Qwen/Qwen2.5-7B-Instruct`" in text
    printed = CliRunner().invoke(
        main, ["job", "submit", "--recipe", done["recipe_path"], "--print-recipe"]
    )
    assert printed.exit_code == 0, printed.output
    assert KEY not in "".join(path.read_text() for path in folder.rglob("*") if path.is_file())
    assert folder.stat().st_mode & 0o077 == 0


def test_exit_kit_connects_to_that_account_and_to_nothing_else(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached: set[tuple[str, int]] = set()
    connect = socket.socket.connect

    def record(self: socket.socket, address: Any) -> None:
        reached.add(address)
        connect(self, address)

    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    monkeypatch.setattr(socket.socket, "connect", record)
    read(stub, tmp_path)
    address = urlsplit(stub.url)
    assert reached == {(address.hostname, address.port)}


def test_exit_kit_a_second_run_asks_for_nothing_that_is_there(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    first = read(stub, tmp_path)
    Path(first["plan"][0]["recipe_path"]).write_text("version: 1\n")
    stub.asked.clear()
    again = read(stub, tmp_path)
    assert stub.asked == ["/files", "/fine_tuning/jobs", "/evals", "/chat/completions"]
    assert again["files"] == first["files"]
    assert Path(first["plan"][0]["recipe_path"]).read_text() == "version: 1\n"  # edited, so kept


def test_exit_kit_a_dry_run_writes_nothing_and_downloads_nothing(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    result = run(stub, tmp_path, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "qwen2.5-7b-instruct" in result.output
    assert "1 files" in result.output
    assert "Asking the old models costs at most" in result.output
    assert "`tunery base add Qwen/Qwen2.5-7B-Instruct`" in result.output
    assert not (tmp_path / "acme").exists()
    assert stub.asked == ["/files", "/fine_tuning/jobs"]


def test_exit_kit_a_dry_run_says_what_training_costs_here(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a", trained_tokens=3_000)
    stub.add_job("ftjob-2", "file-a", status="failed", fine_tuned_model=None)
    stub.add_job("ftjob-3", "file-a", trained_tokens=6_000)
    api = ScriptedApi(
        monkeypatch,
        {
            "GET /bases": {"data": [{"id": "qwen2.5-7b-instruct", "aliases": []}]},
            "POST /fine_tuning/jobs/estimate": ESTIMATE,
        },
    )
    monkeypatch.setenv("OPENAI_EXPORT_KEY", KEY)
    words = ("import", "openai", "--dry-run", "--base-url", stub.url)
    shown = api.run(*words, columns=300)
    assert shown.exit_code == 0, shown.output
    assert "0.0800 EUR, at most 1.6000 EUR" in shown.output
    assert "it is failed there, and has no model to replace" in shown.output
    assert "Training 2 models here costs about 0.1600 EUR, at most 3.2000 EUR." in shown.output
    newest, sent = [body for body in api.bodies if body]
    assert newest["training_tokens"] == 2_000
    assert (sent["model"], sent["training_tokens"]) == ("qwen2.5-7b-instruct", 1_000)
    assert sent["training"] == {"n_epochs": 3}
    assert api.connections == 2  # for the base models, and for all estimates


def test_exit_kit_a_plan_says_time_and_price_of_each_job_here(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a", trained_tokens=None)
    known = {"data": [{"id": "qwen2.5-7b-instruct", "aliases": []}]}
    answers = {"GET /bases": known, "POST /fine_tuning/jobs/estimate": ESTIMATE}
    api = ScriptedApi(monkeypatch, answers)
    monkeypatch.setenv("OPENAI_EXPORT_KEY", KEY)
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--base-url", stub.url)
    shown = api.run(*words, columns=400)
    assert "about 2 min 0 s, at most 40 min 0 s; 0.0800 EUR, at most 1.6000 EUR" in shown.output
    [sent] = [body for body in api.bodies if body]
    assert sent["training_tokens"] == len(rows()) // 4  # by their bytes
    assert "training_file" not in sent


def test_exit_kit_waits_where_requests_are_limited(stub: AccountStub, tmp_path: Path) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    stub.limited = 5
    assert len(read(stub, tmp_path)["files"]) == 1
    assert stub.limited == 0


@pytest.mark.parametrize("ranges", [True, False])
def test_exit_kit_a_cut_connection_is_continued_or_begun_again(
    stub: AccountStub, tmp_path: Path, ranges: bool
) -> None:
    content = rows(200)
    stub.add_file("file-a", content)
    stub.ranges, stub.cut = ranges, [1_000, 2_000, 0]
    assert read(stub, tmp_path)["files"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    again = stub.sent_bytes["file-a"] - len(content)
    assert (again < 3_000) if ranges else (again == 3_000)


def test_exit_kit_what_cannot_be_had_is_listed_with_its_reason(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.add_file("file-expired", rows())
    stub.add_file("file-short", rows(), bytes=10_000)
    stub.files["../../etc"] = {**stub.files["file-a"], "id": "../../etc"}
    stub.gone["file-expired"] = (404, "No such File object: file-expired")
    stub.add_job("ftjob-1", "file-deleted")
    stub.add_job("ftjob-2", "file-expired")
    result = read(stub, tmp_path)
    missing = {item["id"]: item["reason"] for item in result["missing"]}
    assert missing == {
        "../../etc": "its id cannot be the name of a file",
        "file-deleted": "404: No such object: /files/file-deleted",
        "file-expired": "404: No such File object: file-expired",
        "file-short": f"{len(rows()):,} bytes came, and the account says 10,000",
    }
    assert [item["id"] for item in result["files"]] == ["file-a"]
    reasons = [item["reasons"][0] for item in result["plan"]]
    assert reasons == [
        "its training file file-expired could not be had",
        "its training file file-deleted could not be had",
    ]
    assert "could not be had: file file-expired" in run(stub, tmp_path).output


def test_exit_kit_a_job_whose_base_was_retired_is_planned_or_named(
    stub: AccountStub, tmp_path: Path
) -> None:
    """The rows of a job with a retired base are trained on a base that replaces it."""
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a", model="davinci-002", fine_tuned_model="ft:davinci-002:a::1")
    stub.add_job("ftjob-2", "file-a", model="curie", fine_tuned_model="curie:ft-acme-2023")
    unknown, known = read(stub, tmp_path)["plan"]
    assert (known["recipe"]["model"], unknown["recipe"]) == ("qwen2.5-7b-instruct", None)
    assert unknown["reasons"] == ["no base is named for curie: add it to a file for --bases"]


def test_exit_kit_reads_a_thousand_jobs_page_by_page(stub: AccountStub, tmp_path: Path) -> None:
    stub.add_file("file-a", rows())
    for number in range(1_000):
        stub.add_job(f"ftjob-{number:04}", "file-a")
    result = run(stub, tmp_path, "--dry-run", "--json")
    assert len({job["id"] for job in json.loads(result.stdout)["jobs"]}) == 1_000
    assert stub.asked.count("/fine_tuning/jobs") == 10


def test_exit_kit_goes_on_after_kill_9_at_any_request(stub: AccountStub, tmp_path: Path) -> None:
    """The import is killed while it waits for a file, and for the details of a job."""
    contents = {f"file-{name}": rows(count) for name, count in (("a", 40), ("b", 50))}
    for file_id, content in contents.items():
        stub.add_file(file_id, content)
        stub.add_job(f"ftjob-{file_id}", file_id)
    kept = {name: value for name, value in os.environ.items() if "OPENAI" not in name}
    env = kept | {name: value for name, value in environment(tmp_path).items() if value is not None}
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--base-url", stub.url, "--json")
    command = [sys.executable, "-m", "tunery.cli.main", *words]

    deaths = 0
    for path in ("/fine_tuning/jobs/ftjob-file-a/checkpoints", "/files/file-a/content"):
        process: list[subprocess.Popen[bytes]] = []

        def kill(asked: str, fatal: str = path, victims: Any = process) -> None:
            if asked == fatal:
                victims[0].kill()

        stub.before = kill
        process.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
        assert process[0].wait(WAIT_S_MAX) == -signal.SIGKILL
        deaths += 1
    stub.before = lambda _path: None
    result = read(stub, tmp_path)
    assert deaths == 2
    assert {item["id"]: item["sha256"] for item in result["files"]} == {
        file_id: hashlib.sha256(content).hexdigest() for file_id, content in contents.items()
    }
    assert [*(tmp_path / "acme").rglob("*.part")] == []


def test_exit_kit_a_partial_download_is_continued(stub: AccountStub, tmp_path: Path) -> None:
    content = rows(100)
    stub.add_file("file-a", content)
    files = tmp_path / "acme/files"
    files.mkdir(parents=True)
    (files / "file-a.part").write_bytes(content[:500])
    assert read(stub, tmp_path)["files"][0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert stub.sent_bytes["file-a"] == len(content) - 500


def test_exit_kit_a_part_that_is_longer_than_its_file_is_begun_again(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    (tmp_path / "acme/files").mkdir(parents=True)
    (tmp_path / "acme/files/file-a.part").write_bytes(b"x" * 10_000)
    assert read(stub, tmp_path)["files"][0]["sha256"] == hashlib.sha256(rows()).hexdigest()


def test_exit_kit_a_full_disk_is_an_error_before_the_download(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows(), bytes=2_000_000_000)
    usage = shutil.disk_usage(tmp_path)._replace(free=100 * MIB)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    result = run(stub, tmp_path)
    assert result.exit_code == 1
    assert "has 105 MB free, and the files need 2,000" in result.output
    assert "fix: free its disk, or name a folder on another one with --to" in result.output
    assert not stub.sent_bytes


def test_exit_kit_a_disk_that_becomes_full_is_an_error_with_a_fix(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "acme/files/file-a.part")

    with monkeypatch.context() as patched:
        patched.setattr("tunery.exit_kit.folder.ExportFolder.keep", full)
        result = run(stub, tmp_path)
    assert result.exit_code == 1
    assert "acme/files/file-a.part cannot be used: No space left on device" in result.output
    assert "fix: free its disk" in result.output
    assert len(read(stub, tmp_path)["files"]) == 1
    assert stub.sent_bytes["file-a"] == len(rows())  # it was complete, and does not come again


def test_exit_kit_a_revoked_key_an_account_without_fine_tuning_and_no_key(
    stub: AccountStub, tmp_path: Path
) -> None:
    revoked = run(stub, tmp_path, key="sk-other")
    assert (revoked.exit_code, "sk-other" in revoked.output) == (1, False)
    assert "refuses the key" in revoked.output
    assert "fix: create a key" in revoked.output
    stub.refusal = (403, "Fine-tuning is not available to this organization.")
    refused = run(stub, tmp_path)
    assert "Fine-tuning is not available to this organization." in refused.output
    assert "fix: use a key of a project with fine-tuning" in refused.output
    keyless = run(stub, tmp_path, key="")
    assert "fix: set OPENAI_EXPORT_KEY" in keyless.output
    clear = run(stub, tmp_path, "--base-url", "http://api.example.com/v1")
    assert "would send the key in the clear" in clear.output


def test_exit_kit_bad_rows_are_left_out_and_listed(stub: AccountStub, tmp_path: Path) -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    seen = {
        "messages": [{"role": "user", "content": [image]}, {"role": "assistant", "content": "A"}]
    }
    stub.add_file("file-a", rows(12) + json.dumps(seen).encode() + b"\n{broken\n")
    stub.add_file("file-b", json.dumps(seen).encode() * 1 + b"\n")
    stub.add_job("ftjob-1", "file-a")
    stub.add_job("ftjob-2", "file-b")
    few, mended = read(stub, tmp_path)["plan"]
    assert few["recipe"] is None
    assert few["reasons"][0].startswith("too few rows can be trained on: ")
    assert (mended["rows"], mended["left_out"]) == (12, 2)
    assert mended["recipe"]["training_file"] == "../data/file-a.jsonl"
    data = tmp_path / "acme/data"
    assert (data / "file-a.jsonl").read_bytes() == rows(12)
    left_out = (data / "file-a.left-out.jsonl").read_text().splitlines()
    assert {json.loads(line)["row"] for line in left_out} == {13, 14}


def test_exit_kit_evals_become_validation_rows_and_measures(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    model = stub.jobs[0]["fine_tuned_model"]
    asked = {f"Is {number} even?": ("yes", "no") for number in range(10)}
    judges = [
        {"type": "python", "name": "code", "source": "def grade(sample, item): return 1"},
        {"type": "label_model", "name": "polite", "model": "gpt-4o", "labels": ["a", "b"]},
    ]
    stub.add_eval("eval_1", model, asked)
    stub.evals[0]["testing_criteria"] += judges
    result = read(stub, tmp_path)
    [kept] = result["kept"]
    assert (kept["id"], kept["rows"], kept["models"]) == ("eval_1", 10, [model])
    assert sorted(kept["left_out"]) == [
        "criterion code (python): it compares with nothing that an item has",
        'criterion polite (label_model): a model judges; name "judge" in eval.measures',
    ]
    recipe = result["plan"][0]["recipe"]
    assert recipe["validation_file"] == "../kept/eval-eval_1.jsonl"
    assert recipe["eval"]["measures"][0]["reference"] == "{{item.reference}}"
    assert result["plan"][0]["problems"] == []
    first = json.loads((tmp_path / "acme/kept/eval-eval_1.jsonl").read_text().splitlines()[0])
    assert first["messages"][-1] == {"role": "assistant", "content": "yes"}
    stub.asked.clear()
    assert read(stub, tmp_path)["kept"] == result["kept"]
    assert not [path for path in stub.asked if path.endswith("/output_items")]


def test_exit_kit_stored_completions_become_rows_and_the_rest_is_listed(
    stub: AccountStub, tmp_path: Path
) -> None:
    for number in range(12):
        stub.add_completion(f"chatcmpl-{number}", "gpt-4o-mini", f"Say {number}", f"{number}!")
    stub.add_completion("chatcmpl-refused", "gpt-4o-mini", "Say it", "", refusal="No.")
    stub.add_completion("chatcmpl-cut", "gpt-4o-mini", "Say more", "and")
    stub.completions[-1]["choices"][0]["finish_reason"] = "length"
    stub.add_completion("chatcmpl-seen", "gpt-4o-mini", "Look", "A cat")
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    stub.messages["chatcmpl-seen"][0] |= {"content": None, "content_parts": [image]}
    result = read(stub, tmp_path)
    [kept] = result["kept"]
    assert kept["rows"] == 12
    assert kept["left_out"] == {
        "it is a refusal": 1,
        "it ended with length": 1,
        "it has image_url": 1,
    }
    assert result["completions"] == 15  # what has no meaning here is in the folder all the same
    path = tmp_path / "acme/completions.jsonl"
    path.write_bytes(path.read_bytes()[:-20])  # as a killed run leaves it
    assert read(stub, tmp_path)["kept"] == result["kept"]
    assert len(path.read_text().splitlines()) == 15


def test_exit_kit_an_account_without_evals_is_read_all_the_same(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows())
    stub.refused = {"/evals": (403, "Evals are not available.")}
    result = read(stub, tmp_path)
    assert result["missing"] == [
        {"kind": "evals", "id": "all", "reason": "403: Evals are not available."}
    ]
    assert len(result["files"]) == 1


def test_exit_kit_rows_are_held_out_where_there_are_enough(
    stub: AccountStub, tmp_path: Path
) -> None:
    stub.add_file("file-a", rows(100) + rows(100))
    stub.add_job("ftjob-1", "file-a")
    [plan] = read(stub, tmp_path)["plan"]
    data = tmp_path / "acme/data"
    training = (data / "file-a.training.jsonl").read_text().splitlines()
    held_out = (data / "file-a.held-out.jsonl").read_text().splitlines()
    assert sorted([*training, *held_out]) == sorted((rows(100) + rows(100)).decode().splitlines())
    assert len(held_out) == 20
    assert not set(training) & set(held_out)
    assert plan["recipe"]["validation_file"] == "../data/file-a.held-out.jsonl"


def test_exit_kit_go_submits_every_recipe_once(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    read(stub, tmp_path)
    api = ScriptedApi(monkeypatch, submitting())
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--go")
    refused = api.run(*words, typed="n\n")
    assert "Train 1 models?" in refused.output
    assert "POST /fine_tuning/jobs" not in api.asked
    done = api.run(*words, "--yes")
    assert done.exit_code == 0, done.output
    assert "ftjob-1 → ftjob-new" in done.output
    assert "0.0800 EUR, at most 1.6000 EUR" in done.output
    sent = next(item for item in api.requests if item.url.path == "/v1/fine_tuning/jobs")
    folder = json.loads((tmp_path / "acme/account.json").read_text())["folder"]
    assert sent.headers["idempotency-key"] == f"import-{folder}-ftjob-1"
    assert json.loads(sent.content)["training_file"] == "file-new"
    again = json.loads(api.run(*words, "--yes", "--json").stdout)
    assert again["submitted"] == [{"job_id": "ftjob-1", "id": "ftjob-new", "new": False}]
    assert api.asked.count("POST /fine_tuning/jobs") == 1


def submitting() -> dict[str, Any]:
    """Answers of an API that takes a file and a job."""
    file = {"id": "file-new", "status": "processed", "sha256": "", "validation": {}}
    return {
        "GET /bases": {"data": []},
        "POST /fine_tuning/jobs/estimate": ESTIMATE,
        "GET /files": {"data": [], "has_more": False, "last_id": None},
        "POST /files": file,
        "GET /files/file-new": file,
        "POST /fine_tuning/jobs": {"id": "ftjob-new"},
    }


def test_exit_kit_a_run_that_ends_between_submission_and_its_record_submits_the_same_again(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    read(stub, tmp_path)
    api = ScriptedApi(monkeypatch, submitting())
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--go", "--yes", "--json")
    replace = Path.replace

    def dying(path: Path, target: Path) -> Path:
        if target.name == "submitted.json":
            raise SystemExit(137)
        return replace(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", dying)
        assert api.run(*words).exit_code == 137
    done = json.loads(api.run(*words).stdout)
    assert [job["id"] for job in done["submitted"]] == ["ftjob-new"]
    both = [item for item in api.requests if item.url.path == "/v1/fine_tuning/jobs"]
    first, second = both
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.content == second.content


def test_exit_kit_rows_over_the_context_are_reported_and_other_jobs_go_on(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-1", "file-a")
    stub.add_job("ftjob-2", "file-a")
    read(stub, tmp_path)
    text = "12 rows are longer than the base model's context of 2,048 tokens."
    answers = submitting() | {
        "POST /fine_tuning/jobs/estimate": [refusal(422, "rows_too_long", text), ESTIMATE]
    }
    api = ScriptedApi(monkeypatch, answers)
    words = ("import", "openai", "--to", str(tmp_path / "acme"), "--go", "--yes", "--json")
    result = api.run(*words)
    assert result.exit_code == 1
    long, other = json.loads(result.stdout)["submitted"]
    assert text in long["error"]
    assert other["id"] == "ftjob-new"


def test_exit_kit_without_the_openai_package_says_how_to_install_it(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    result = run(stub, tmp_path)
    assert result.exit_code == 1
    assert "the `openai` package is not installed" in result.output
    assert "fix: install tunery's extra `openai`" in result.output
    assert not (tmp_path / "acme/account.json").exists()


ESTIMATE: Final[dict[str, Any]] = {
    "estimation_available": True,
    "refusal": None,
    "expected_duration_seconds": 120,
    "max_duration_seconds": 2_400,
    "currency": "EUR",
    "amount_micro": 80_000,
    "amount_max_micro": 1_600_000,
}


def test_exit_kit_the_commands_of_the_page_run_as_they_are_written(
    stub: AccountStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.add_file("file-a", rows())
    stub.add_job("ftjob-91", "file-a")
    monkeypatch.chdir(tmp_path)
    Path("bases.toml").write_text(
        PAGE.read_text("utf-8").partition("```toml\n")[2].partition("```")[0]
    )
    commands = [
        line.removeprefix("$ ").partition("  #")[0].strip()
        for line in PAGE.read_text("utf-8").splitlines()
        if line.startswith("$ tunery import openai")
    ]
    assert len(commands) == 5
    submitted: list[Any] = []

    def submit(*words: object) -> list[Any]:
        submitted.append(words)
        return []

    monkeypatch.setattr("tunery.exit_kit.account.OFFICIAL", stub.url)
    module = sys.modules["tunery.cli.import"]
    monkeypatch.setattr(module, "_submit", submit)
    monkeypatch.setattr(module, "_bases_here", lambda *_, **__: {})
    for command in commands:
        words = shlex.split(command)[1:]
        done = CliRunner().invoke(main, words, env=environment(tmp_path))
        assert done.exit_code == 0, done.output
    assert len(submitted) == 1
    assert Path("acme/recipes/ftjob-91.yaml").exists()

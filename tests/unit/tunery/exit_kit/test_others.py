"""Accounts of Azure OpenAI and Together AI, against stand-ins written from their references."""

import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner, Result

from tests.unit.tunery.cli.test_import import environment
from tunery.cli.main import main
from tunery.exit_kit.account import OpenAIAccount
from tunery.exit_kit.others import AZURE_VERSION, AzureAccount, TogetherAccount
from tunery.exit_kit.stand_in import KEY, AccountStub, account_stub, rows

TUNED = "gpt-4o-mini-2024-07-18.ft-0e208cf33a6a466994aff31a08aba678-faq"
OPEN = "meta-llama/Meta-Llama-3.1-8B-Instruct-Reference"


@dataclass
class AzureStub(AccountStub):
    """A resource: its key is in `api-key`, and a model answers behind its deployment.

    versions: of the API, that it was asked by
    """

    versions: set[str] = field(default_factory=set)

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        url = urlsplit(handler.path)
        self.versions |= {*parse_qs(url.query)["api-version"]}
        path = url.path.removeprefix("/openai")
        handler.headers["authorization"] = f"Bearer {handler.headers['api-key']}"
        if path.startswith("/deployments/"):
            assert path == "/deployments/faq/chat/completions"
            path = "/chat/completions"
        handler.path = f"{path}?{url.query}"
        super().answer(handler)


class TogetherStub(AccountStub):
    """An account: lists have no pages, and jobs have other names."""

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path = urlsplit(handler.path).path.removeprefix("/v1")
        listed: Any = None
        match path.strip("/").split("/"):
            case ["fine-tunes"]:
                listed = self.jobs
            case ["fine-tunes", _, "events"]:
                listed = [{"object": "fine-tune-event", "message": "Job finished", "step": 12}]
            case ["fine-tunes", _, "checkpoints"]:
                listed = [{"step": 12, "path": "s3://there", "checkpoint_type": "Final"}]
            case ["files"]:
                listed = [*self.files.values()]
            case _:
                pass
        if listed is None or handler.headers["authorization"] != f"Bearer {KEY}":
            super().answer(handler)
            return
        content = json.dumps({"data": listed}).encode()
        handler.send_response(200)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)


def run(tmp_path: Path, key_name: str, *words: str, key: str = KEY) -> Result:
    environ = {**environment(tmp_path, ""), key_name: key, "OPENAI_BASE_URL": "http://elsewhere/v1"}
    command = ("import", *words, "--to", str(tmp_path / "acme"))
    return CliRunner().invoke(main, command, env=environ)


def test_exit_kit_a_resource_of_azure_is_read_and_asked_by_deployment(tmp_path: Path) -> None:
    with account_stub(AzureStub) as stub:
        assert isinstance(stub, AzureStub)
        stub.add_file("file-a", rows(60))
        hyper = {"n_epochs": -1, "batch_size": -1}
        method = {"type": "supervised", "supervised": {"hyperparameters": hyper}}
        stub.add_job(
            "ftjob-1", "file-a", fine_tuned_model=TUNED, hyperparameters=hyper, method=method
        )
        stub.answers["faq"] = lambda _messages: "It is 2."
        url = stub.url.removesuffix("/v1")
        words = ("azure", "--base-url", url, "--json", "--teacher-budget", "1")
        prices = tmp_path / "prices.toml"
        prices.write_text('[[price]]\nmodels = ["gpt-4o-mini*"]\ninput = 0.3\noutput = 1.2\n')
        named = (*words, "--prices", str(prices))
        unnamed = json.loads(run(tmp_path, AzureAccount.key_name, *named).stdout)
        done = run(tmp_path, AzureAccount.key_name, *named, "--deployment", f"{TUNED}=faq")
        assert stub.versions == {AZURE_VERSION}
        wrong = run(
            *(tmp_path, AzureAccount.key_name, *words, "--api-version", "2025-04-01-preview"),
            key="sk-other",
        )
        assert stub.versions == {AZURE_VERSION, "2025-04-01-preview"}
    [asked] = unnamed["teacher"]
    option = f"--deployment {TUNED}=NAME, or `deployments` over HTTP"
    assert asked["reason"] == f"it answers by its deployment: {option}"
    assert asked["spent_micro"] == 0
    result = json.loads(done.stdout)
    [planned] = result["plan"]
    assert (planned["tuned_model"], planned["base"]["id"]) == (TUNED, "qwen2.5-7b-instruct")
    assert planned["recipe"]["suffix"] == "faq"
    assert "training" not in planned["recipe"]  # -1 is Azure's word for auto
    assert result["teacher"][0]["answered"] == 10
    assert {item["kind"] for item in result["missing"]} == {"evals", "completions"}
    assert "fix: create a key in the account's settings, and set AZURE_EXPORT_KEY" in wrong.output


def test_exit_kit_an_account_of_together_is_read_and_keeps_its_open_bases(tmp_path: Path) -> None:
    with account_stub(TogetherStub) as stub:
        stub.add_file("file-a", rows())
        stub.add_file("file-e", rows(), purpose="eval")
        stub.jobs = [together_job("ft-1", status="completed"), together_job("ft-2", status="error")]
        words = ("together", "--base-url", stub.url, "--json")
        done = run(tmp_path, TogetherAccount.key_name, *words)
        again = run(tmp_path, TogetherAccount.key_name, *words)
        revoked = run(tmp_path, TogetherAccount.key_name, *words, key="sk-other")
    result = json.loads(done.stdout)
    assert json.loads(again.stdout) == result
    assert [item["id"] for item in result["files"]] == ["file-a"]
    planned = {job["job_id"]: job for job in result["plan"]}
    assert planned["ft-2"]["reasons"] == ["it is failed there, and has no model to replace"]
    base = planned["ft-1"]["base"]
    assert base["source"] == "meta-llama/Meta-Llama-3.1-8B-Instruct"
    assert planned["ft-1"]["tuned_model"] == "acme/faq-91"
    recipe = planned["ft-1"]["recipe"]
    assert recipe["method"] == {"type": "dpo"}
    assert recipe["training"] == {"n_epochs": 2, "learning_rate": 1e-5, "beta": 0.2}
    assert recipe["lora"] == {"rank": 8, "alpha": 16}
    assert (recipe["seed"], recipe["suffix"]) == (7, "faq")
    kept = json.loads((tmp_path / "acme/jobs/ft-1.json").read_text())
    assert kept["checkpoints"][0]["path"] == "s3://there"
    assert kept["model_output_name"] == "acme/faq-91"
    assert "set TOGETHER_EXPORT_KEY" in revoked.output


def together_job(name: str, status: str) -> dict[str, Any]:
    """A job as `GET /fine-tunes` lists it."""
    return {
        "id": name,
        "status": status,
        "created_at": "2026-05-17T17:35:45.123Z",
        "model": OPEN,
        "model_output_name": "acme/faq-91",
        "training_file": "file-a",
        "validation_file": "",
        "suffix": "faq",
        "random_seed": 7,
        "n_epochs": 2,
        "batch_size": "max",
        "learning_rate": 1e-5,
        "training_method": {"method": "dpo", "dpo_beta": 0.2},
        "training_type": {"type": "Lora", "lora_r": 8, "lora_alpha": 16},
    }


@pytest.mark.parametrize("account", [OpenAIAccount, AzureAccount, TogetherAccount])
def test_exit_kit_each_service_has_a_key_of_its_own(account: type[OpenAIAccount]) -> None:
    assert account.key_name.endswith("_EXPORT_KEY")


def test_exit_kit_a_deployment_without_its_name_is_refused(tmp_path: Path) -> None:
    words = ("azure", "--base-url", "https://acme.openai.azure.com", "--deployment", "faq")
    assert "faq is no MODEL=NAME" in run(tmp_path, AzureAccount.key_name, *words).output

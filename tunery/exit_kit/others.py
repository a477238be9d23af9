"""Accounts of other services, where they differ from OpenAI's in names: Azure OpenAI, Together AI.

Both were written from their references and run against stand-ins of ours, never against an account.

Azure: the data plane for authoring, version 2024-10-21, in `Azure/azure-rest-api-specs`
(`specification/cognitiveservices/data-plane/AzureOpenAI/authoring`).
Together: https://docs.together.ai/reference/get-fine-tunes and `togethercomputer/openapi`.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tunery.exit_kit.account import RETRIES_MAX, NotToBeHad, OpenAIAccount

if TYPE_CHECKING:
    import openai

AZURE_VERSION: Final = "2024-10-21"
TOGETHER: Final = "https://api.together.xyz/v1"
STATUSES: Final = {"completed": "succeeded", "error": "failed", "user_error": "failed"}
METHODS: Final = {"sft": "supervised"}
NO_LIST: Final = "this API has no list of them"


class AzureAccount(OpenAIAccount):
    """A resource of Azure OpenAI.

    url: of the resource, like https://NAME.openai.azure.com
    deployments: by tuned model, the name of its deployment, by which it answers
    version: of the API
    """

    key_name: ClassVar[str] = "AZURE_EXPORT_KEY"

    def __init__(
        self, key: str, url: str, deployments: Mapping[str, str], version: str = AZURE_VERSION
    ) -> None:
        self._deployments, self._version = deployments, version
        super().__init__(key, url)

    def _connect(self, key: str) -> "openai.OpenAI":
        import openai

        return openai.AzureOpenAI(
            api_key=key,
            base_url=f"{self.url}/openai",
            api_version=self._version,
            max_retries=RETRIES_MAX,
        )

    def asked_as(self, model: str) -> str:
        """Return the deployment of a model. Raises NotToBeHad where none is named."""
        if (name := self._deployments.get(model)) is None:
            option = f"--deployment {model}=NAME, or `deployments` over HTTP"
            raise NotToBeHad(f"it answers by its deployment: {option}")
        return name

    def evals(self) -> Iterator[dict[str, Any]]:
        """Raises NotToBeHad."""
        raise NotToBeHad(NO_LIST)

    def completions(self) -> Iterator[dict[str, Any]]:
        """Raises NotToBeHad."""
        raise NotToBeHad(NO_LIST)


class TogetherAccount(OpenAIAccount):
    """An account of Together AI, whose jobs are given OpenAI's names."""

    key_name: ClassVar[str] = "TOGETHER_EXPORT_KEY"
    tokens_name: ClassVar[str] = "max_tokens"

    def files(self) -> Iterator[dict[str, Any]]:
        with self._explained("files"):
            listed = self._listed("/files")
        yield from (file for file in listed if file.get("purpose") == "fine-tune")

    def jobs(self) -> Iterator[dict[str, Any]]:
        with self._explained("fine-tuning jobs"):
            listed = self._listed("/fine-tunes")
        yield from sorted(map(_job, listed), key=lambda job: -job["created_at"])

    def events(self, job_id: str) -> list[dict[str, Any]]:
        with self._explained(job_id, is_item=True):
            return self._listed(f"/fine-tunes/{job_id}/events")

    def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        with self._explained(job_id, is_item=True):
            return self._listed(f"/fine-tunes/{job_id}/checkpoints")

    def evals(self) -> Iterator[dict[str, Any]]:
        """Raises NotToBeHad."""
        raise NotToBeHad(NO_LIST)

    def completions(self) -> Iterator[dict[str, Any]]:
        """Raises NotToBeHad."""
        raise NotToBeHad(NO_LIST)

    def _listed(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of a list, which this API answers as a whole."""
        answer: Any = self._client.get(path, cast_to=object)
        objects = answer.get("data") if isinstance(answer, dict) else answer
        return [item for item in objects or () if isinstance(item, dict)]


def _job(there: Mapping[str, Any]) -> dict[str, Any]:
    """Return a job of Together's with OpenAI's names; its own fields stay beside them."""
    status = str(there.get("status"))
    kind = there.get("training_method") or {}
    method = METHODS.get(str(kind.get("method") or "sft"), str(kind.get("method")))
    adapter = there.get("training_type") or {}
    hyper = {name: there.get(name) for name in ("n_epochs", "batch_size", "learning_rate")}
    if kind.get("dpo_beta") is not None:
        hyper["beta"] = kind["dpo_beta"]
    lora = {
        name: adapter[there_name]
        for name, there_name in (("rank", "lora_r"), ("alpha", "lora_alpha"))
        if adapter.get("type") == "Lora" and adapter.get(there_name)
    }
    return {
        **there,
        "status": STATUSES.get(status, status),
        "created_at": _seconds(there.get("created_at")),
        "model": str(there.get("model")),
        "fine_tuned_model": there.get("model_output_name") or there.get("output_name"),
        "training_file": str(there.get("training_file")),
        "validation_file": there.get("validation_file") or None,
        "user_provided_suffix": there.get("suffix"),
        "seed": there.get("random_seed"),
        "method": {"type": method, method: {"hyperparameters": hyper}},
        "lora": lora,
    }


def _seconds(moment: Any) -> int:
    if isinstance(moment, int | float):
        return int(moment)
    try:
        return int(datetime.fromisoformat(str(moment)).timestamp())
    except ValueError:
        return 0

"""An account of OpenAI's fine-tuning API, through the official SDK."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tunery.local.errors import LocalError

if TYPE_CHECKING:
    import openai

OFFICIAL: Final = "https://api.openai.com/v1"
RETRIES_MAX: Final = 8  # of a request, by the SDK, which waits as long as `retry-after` says
BREAKS_MAX: Final = 5  # of a download, without a new byte between two
PAGE: Final = 100
REASONS: Final = re.compile(r"(ft:)?o\d")  # beginning of the name of a model that reasons
AGAIN: Final = "the same command goes on where this one ended"


class NotToBeHad(Exception):
    """Something that the account names and does not hand out; the text is the reason.

    status: of the HTTP answer; None without one
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class Limited(Exception):
    """A request that was refused for now, and cost nothing."""

    def __init__(self, reason: str, wait_s: float) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class Unsure(Exception):
    """A request that may have been answered, so its cost is unknown."""


class OpenAIAccount:
    """An account, as its key sees it. Its methods raise LocalError where nothing can be read."""

    key_name: ClassVar[str] = "OPENAI_EXPORT_KEY"  # of the variable that the key is in
    tokens_name: ClassVar[str] = "max_completion_tokens"  # of the bound of an answer

    def __init__(self, key: str, url: str = OFFICIAL) -> None:
        try:
            import openai  # noqa: F401  # `_connect` needs it
        except ModuleNotFoundError:
            fix = "install tunery's extra `openai`, or `pip install openai` beside tunery"
            raise LocalError("the `openai` package is not installed", fix) from None
        self.url = url.rstrip("/")
        self._client = self._connect(key)

    def _connect(self, key: str) -> "openai.OpenAI":
        import openai

        return openai.OpenAI(api_key=key, base_url=self.url, max_retries=RETRIES_MAX)

    def asked_as(self, model: str) -> str:
        """Return the name by which a tuned model answers. Raises NotToBeHad where it has none."""
        return model

    def __enter__(self) -> "OpenAIAccount":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def files(self) -> Iterator[dict[str, Any]]:
        """Yield the files that were uploaded for fine-tuning."""
        with self._explained("files"):
            for file in self._client.files.list(purpose="fine-tune"):
                yield file.model_dump(mode="json")

    def jobs(self) -> Iterator[dict[str, Any]]:
        """Yield all fine-tuning jobs, newest first."""
        with self._explained("fine-tuning jobs"):
            for job in self._client.fine_tuning.jobs.list(limit=PAGE):
                yield job.model_dump(mode="json")

    def file(self, file_id: str) -> dict[str, Any]:
        """Return the fields of a file. Raises NotToBeHad."""
        with self._explained(file_id, is_item=True):
            return self._client.files.retrieve(file_id).model_dump(mode="json")

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Return the events of a job, newest first. Raises NotToBeHad."""
        with self._explained(job_id, is_item=True):
            pages = self._client.fine_tuning.jobs.list_events(job_id, limit=PAGE)
            return [event.model_dump(mode="json") for event in pages]

    def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        """Return the checkpoints of a job, newest first. Raises NotToBeHad."""
        with self._explained(job_id, is_item=True):
            pages = self._client.fine_tuning.jobs.checkpoints.list(job_id, limit=PAGE)
            return [checkpoint.model_dump(mode="json") for checkpoint in pages]

    def evals(self) -> Iterator[dict[str, Any]]:
        """Yield the evals. Raises NotToBeHad where the account has none to list."""
        with self._explained("evals", is_item=True):
            for item in self._client.evals.list(limit=PAGE):
                yield item.to_dict(mode="json", warnings=False)

    def eval_runs(self, eval_id: str) -> list[dict[str, Any]]:
        """Return the runs of an eval. Raises NotToBeHad."""
        with self._explained(eval_id, is_item=True):
            pages = self._client.evals.runs.list(eval_id, limit=PAGE)
            return [run.to_dict(mode="json", warnings=False) for run in pages]

    def output_items(self, eval_id: str, run_id: str) -> list[dict[str, Any]]:
        """Return what a run asked, was answered and scored. Raises NotToBeHad."""
        with self._explained(run_id, is_item=True):
            pages = self._client.evals.runs.output_items.list(run_id, eval_id=eval_id, limit=PAGE)
            return [item.to_dict(mode="json", warnings=False) for item in pages]

    def completions(self) -> Iterator[dict[str, Any]]:
        """Yield the chat completions that were stored. Raises NotToBeHad where none are listed."""
        with self._explained("stored completions", is_item=True):
            for item in self._client.chat.completions.list(limit=PAGE):
                yield item.to_dict(mode="json", warnings=False)

    def messages(self, completion_id: str) -> list[dict[str, Any]]:
        """Return what was asked in a stored completion. Raises NotToBeHad."""
        with self._explained(completion_id, is_item=True):
            pages = self._client.chat.completions.messages.list(completion_id, limit=PAGE)
            return [message.to_dict(mode="json", warnings=False) for message in pages]

    def answer(
        self,
        model: str,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        tokens_max: int,
    ) -> dict[str, Any]:
        """Ask a model once, and return `text` and `usage`.

        Raises Limited, Unsure, NotToBeHad: it is never asked a second time here, for each time
        may cost.
        """
        import openai

        body: dict[str, Any] = {"messages": messages, self.tokens_name: tokens_max}
        body |= {"tools": tools} if tools else {}
        if not REASONS.match(model):  # models that reason take no temperature
            body["temperature"] = 0
        name = self.asked_as(model)
        create = self._client.with_options(max_retries=0).chat.completions.create
        try:
            with self._explained(model, is_item=True):
                completion = create(model=name, **body)
                usage = completion.usage
                if not completion.choices or usage is None:
                    raise Unsure(f"{model} gives no answer that can be read")
        except LocalError as error:
            cause = error.__context__
            if isinstance(cause, openai.RateLimitError) and cause.code != "insufficient_quota":
                raise Limited(str(error), _wait_s(cause)) from None
            unsure = (openai.InternalServerError, openai.APIConnectionError)
            if isinstance(cause, unsure):
                raise Unsure(str(error)) from None
            raise
        counts = {
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
        }
        return {"text": completion.choices[0].message.content or "", "usage": counts}

    def download(self, file_id: str, part: Path, progress: Callable[[int], None]) -> None:
        """Write the content of a file to `part`, after what is there already.

        A connection that breaks off is continued. Raises NotToBeHad, OSError.
        """
        from httpx2 import HTTPError

        breaks = 0
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                with self._explained(file_id, is_item=True):
                    return self._continue(file_id, part, progress)
            except HTTPError as error:
                grown = part.exists() and part.stat().st_size > before
                breaks = 1 if grown else breaks + 1
                if breaks >= BREAKS_MAX:
                    raise LocalError(
                        f"{self.url} breaks off in {file_id}: {error}", AGAIN
                    ) from None

    def _continue(self, file_id: str, part: Path, progress: Callable[[int], None]) -> None:
        begun = part.stat().st_size if part.exists() else 0
        # a range counts bytes as they are sent, so they are asked for unpacked
        headers = {"accept-encoding": "identity"}
        if begun:
            headers["range"] = f"bytes={begun}-"
        content = self._client.files.with_streaming_response.content
        with content(file_id, extra_headers=headers) as answer:
            continues = answer.headers.get("content-range", "").startswith(f"bytes {begun}-")
            goes_on = bool(begun) and answer.status_code == 206 and continues
            with part.open("ab" if goes_on else "wb") as target:
                for chunk in answer.iter_bytes():  # as they come: what is buffered would be lost
                    target.write(chunk)
                    progress(len(chunk))

    @contextmanager
    def _explained(self, what: str, *, is_item: bool = False) -> Iterator[None]:
        """Say what an error of the SDK means. is_item: a refusal concerns it alone."""
        import openai

        try:
            yield
        except openai.AuthenticationError:
            fix = f"create a key in the account's settings, and set {self.key_name} to it"
            text = f"{self.url} refuses the key: it is revoked, mistyped or of another account"
            raise LocalError(text, fix) from None
        except openai.RateLimitError as error:
            text = f"{self.url} limits requests, and waiting did not help: {said(error)}"
            raise LocalError(text, f"wait some minutes; {AGAIN}") from None
        except openai.APIStatusError as error:
            if is_item and error.status_code < 500:
                raise NotToBeHad(f"{error.status_code}: {said(error)}", error.status_code) from None
            if error.status_code < 500:
                fix = (
                    "use a key of a project with fine-tuning that may read files and fine-tuning "
                    "jobs, and check --base-url"
                )
                raise LocalError(f"the account hands out no {what}: {said(error)}", fix) from None
            raise LocalError(f"{self.url} fails: {said(error)}", f"wait; {AGAIN}") from None
        except openai.APIConnectionError as error:
            text = f"{self.url} does not answer: {error.__cause__ or error}"
            raise LocalError(text, f"check the network and --base-url; {AGAIN}") from None
        except openai.OpenAIError as error:
            raise LocalError(
                f"{self.url} gives no answer that can be read: {error}", AGAIN
            ) from None


def _wait_s(error: "openai.APIStatusError") -> float:
    """Return the seconds that an answer says to wait."""
    try:
        return max(0.0, float(error.response.headers.get("retry-after", "5")))
    except ValueError:
        return 5.0


def said(error: "openai.APIStatusError") -> str:
    """Return the message in the body of an error, on one line."""
    body = error.body
    message = body.get("message") if isinstance(body, dict) else None
    return " ".join(str(message or error.message).split())

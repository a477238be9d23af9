"""Commands of `tunery` over an API whose answers a test writes down."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from tunery.cli.main import main
from tunery.client import Api

ENVIRON = {"OPENAI_BASE_URL": "http://api/v1", "OPENAI_API_KEY": "k", "COLUMNS": "200"}


class ScriptedApi:
    """Answers "GET /files/file-1" with the JSON that `answers` has for it, and keeps each request.

    A list is answered one by one, its last for ever; a Response as it is. Anything else that is
    asked for is unknown to the API.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Any]) -> None:
        self.answers = {name: [*_listed(answer)] for name, answer in answers.items()}
        self.requests: list[httpx.Request] = []
        self.connections = 0

        def connected(url: str, key: str) -> Api:
            self.connections += 1
            return Api(url, key, transport=httpx.MockTransport(self._answer))

        monkeypatch.setattr("tunery.client.Api", connected)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answers = self.answers.get(self.asked[-1])
        if answers is None:
            return refusal(404, "not_found", "There is no such thing.")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer if isinstance(answer, httpx.Response) else httpx.Response(200, json=answer)

    def run(self, *words: str, columns: int | None = None, typed: str | None = None) -> Result:
        """The result of a command. typed: what a person types."""
        wide = {} if columns is None else {"COLUMNS": str(columns)}
        return CliRunner().invoke(main, words, env={**ENVIRON, **wide}, input=typed)

    @property
    def asked(self) -> list[str]:
        """Method and path of each request."""
        return [
            f"{request.method} {request.url.path.removeprefix('/v1')}" for request in self.requests
        ]

    @property
    def bodies(self) -> list[Any]:
        """The JSON that each request carried; None for those without."""
        return [
            json.loads(request.content) if request.content else None for request in self.requests
        ]


def _listed(answer: Any) -> list[Any]:
    return answer if isinstance(answer, list) else [answer]


def page(*items: Any) -> dict[str, Any]:
    """The only page of a list."""
    return {"data": items, "has_more": False, "last_id": items[-1]["id"] if items else None}


def refusal(status: int, code: str, message: str) -> httpx.Response:
    error = {"code": code, "message": message, "param": None, "type": "invalid_request_error"}
    return httpx.Response(status, json={"error": error})

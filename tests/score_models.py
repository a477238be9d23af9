"""A model that scores answers, behind real HTTP, and the agent's socket to it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from services.trainer.effect.scores import ScoreRelay
from tests.http_server import answering
from tunery.graders.grader import parse
from tunery.platform.chat_endpoint import ChatEndpoint

KEY: Final = "key-of-the-operator"
STARTS_S_MAX: Final = 60
# What a server answers to a question: a status, and a body that is a text or becomes JSON.
Reply = tuple[int, Any]


def likes(letter: str) -> Callable[[str], Reply]:
    """A model to which a text is worth its share of a letter, in the last line."""

    def score(text: str) -> Reply:
        answer = text.rpartition("\n")[2]
        return said(json.dumps({"result": answer.count(letter) / max(1, len(answer))}))

    return score


def said(content: str, **message: str) -> Reply:
    """Answer of a model, as a completion."""
    return 200, {"choices": [{"message": {"content": content, **message}}]}


@dataclass
class Judge:
    """A server of OpenAI's form."""

    reply: Callable[[str], Reply]  # to the last message of a question
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)  # the bodies of all questions
    keys: set[str] = field(default_factory=set)  # what came as authorization

    @property
    def texts(self) -> list[str]:
        """The last message of each question."""
        return [str(body["messages"][-1]["content"]) for body in self.asked]

    def endpoint(self, key: str | None = KEY, tries_max: int = 3) -> ChatEndpoint:
        """As an agent has it, but for its patience."""
        return ChatEndpoint(
            self.url, key, timeout_s=10, tries_max=tries_max, pause_s=0.001, at_once_max=4
        )


@contextmanager
def judging(reply: Callable[[str], Reply]) -> Iterator[Judge]:
    """A server in a thread, until the block ends."""
    judge = Judge(reply)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            judge.asked.append({**body, "path": self.path})
            judge.keys.add(str(self.headers["authorization"]))
            status, answer = judge.reply(body["messages"][-1]["content"])
            content = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with answering(Handler) as url:
        judge.url = f"{url}/v1"
        yield judge


@contextmanager
def relayed(endpoint: ChatEndpoint, grader: dict[str, Any], folder: Path) -> Iterator[Path]:
    """The socket of an agent that asks for a process, in a thread."""
    loop = asyncio.new_event_loop()
    relay = ScoreRelay(endpoint, parse(grader))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        path = asyncio.run_coroutine_threadsafe(relay.open(folder), loop).result(STARTS_S_MAX)
        yield path
    finally:
        asyncio.run_coroutine_threadsafe(relay.close(), loop).result(STARTS_S_MAX)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

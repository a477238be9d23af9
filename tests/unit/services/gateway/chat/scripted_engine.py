"""An engine that gives the replies of a script, and keeps what it was asked."""

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import TypeAlias

from services.gateway.web.domain.errors import unavailable
from tunery.work.engine import AnswerEnded, EngineModel, EngineReply, Question, Sampling, TextAdded

HELLO: tuple[EngineReply, ...] = (TextAdded("Hel"), TextAdded("lo"), AnswerEnded("stop", 5, 2))
QUESTION = Question(
    EngineModel("tiny", "/bases/tiny", "ab" * 32, 512),
    ({"role": "user", "content": "Hi"},),
    Sampling(),
)
Script: TypeAlias = Sequence[EngineReply] | Callable[[Question], Sequence[EngineReply]]


class ScriptedEngine:
    """Implements `ChatEngine`. away: it does not run."""

    def __init__(self, replies: Script = HELLO, *, away: bool = False) -> None:
        self.begin(replies, away=away)

    def begin(self, replies: Script = HELLO, *, away: bool = False) -> None:
        """Forget what was asked, and go on with this script."""
        self.replies, self.away = replies, away
        self.asked: list[Question] = []
        self.given_up = 0

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        self.asked.append(question)
        if self.away:
            raise unavailable("The engine")
        complete = False
        try:
            for reply in self.replies(question) if callable(self.replies) else self.replies:
                yield reply
            complete = True
        finally:
            self.given_up += not complete

"""Asks the operator's endpoint for scores of samples: chats of OpenAI's form, one number back.

Tenants choose a model among those that the operator allows, and write the messages. The address and
the key are the operator's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import httpx

from services.gateway.settings import GatewaySettings
from tunery.graders.grader import Grader, ScoreMessage, ScoreModel, parts_of
from tunery.graders.grading import Grade, ScoreUnavailable, grade
from tunery.graders.model_scores import request_body, score_of

TIMEOUT_S: Final = 30.0  # of one try
TRIES_MAX: Final = 3
PAUSE_S: Final = 0.5  # before the second try; twice that before the third
AT_ONCE_MAX: Final = 8  # of one process
ANSWER_BYTES_MAX: Final = 1 << 20
AGAIN: Final = frozenset((408, 409, 429, 500, 502, 503, 504))
NO_ENDPOINT: Final = (
    "score_model asks a model, and no endpoint for such models is configured here; use "
    "text_similarity or string_check"
)
Question: TypeAlias = tuple[ScoreModel, tuple[ScoreMessage, ...]]


class ScoreEndpoint:
    """The endpoint of the settings.

    pause_s: before a second try
    """

    def __init__(self, settings: GatewaySettings, pause_s: float = PAUSE_S) -> None:
        self._url = (settings.score_url or "").rstrip("/")
        self._key = settings.score_key
        self._models = settings.score_models
        self._pause_s = pause_s
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def problem(self, grader: Grader) -> str | None:
        """Why the models of a grader are not asked here; None: they are, or there are none."""
        for part in parts_of(grader):
            if not isinstance(part, ScoreModel):
                continue
            if not self._url:
                return NO_ENDPOINT
            if self._models and part.model not in self._models:
                return f"{part.model!r} gives no scores here; there are {', '.join(self._models)}"
        return None

    async def grade(self, grader: Grader, item: Any, output_text: str) -> Grade:
        """Grade a sample; its models are asked at the same time."""
        questions: list[Question] = []

        def note(part: ScoreModel, messages: tuple[ScoreMessage, ...]) -> float:
            questions.append((part, messages))
            return 0.0

        first = grade(grader, item, output_text, note)
        if not questions:
            return first
        scores = await asyncio.gather(*(self._score(*question) for question in questions))
        answers = dict(zip(questions, scores, strict=True))

        def look_up(part: ScoreModel, messages: tuple[ScoreMessage, ...]) -> float:
            answer = answers[part, messages]
            if isinstance(answer, ScoreUnavailable):
                raise answer
            return answer

        return grade(grader, item, output_text, look_up)

    async def _score(
        self, part: ScoreModel, messages: Sequence[ScoreMessage]
    ) -> float | ScoreUnavailable:
        try:
            async with self._turns:
                return score_of(await self._ask(request_body(part, messages)))
        except ScoreUnavailable as error:
            return error

    async def _ask(self, body: Mapping[str, Any]) -> Any:
        """The body of the endpoint's answer. Raises ScoreUnavailable; it never quotes the key."""
        headers = {} if self._key is None else {"authorization": f"Bearer {self._key}"}
        problem = ""
        async with httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False) as client:
            for attempt in range(TRIES_MAX):
                if attempt:
                    await asyncio.sleep(self._pause_s * 2 ** (attempt - 1))
                try:
                    reply = await client.post(
                        f"{self._url}/chat/completions", json=body, headers=headers
                    )
                except httpx.TransportError as error:
                    problem = f"the endpoint did not answer ({type(error).__name__})"
                    continue
                problem = f"the endpoint answered {reply.status_code}"
                if reply.is_success:
                    return _decoded(reply)
                if reply.status_code not in AGAIN:
                    break
        raise ScoreUnavailable(problem)


def _decoded(reply: httpx.Response) -> Any:
    if len(reply.content) > ANSWER_BYTES_MAX:
        raise ScoreUnavailable(f"the endpoint's answer has more than {ANSWER_BYTES_MAX} bytes")
    try:
        return reply.json()
    except ValueError:
        raise ScoreUnavailable("the endpoint's answer is no JSON") from None

"""Asks the operator's endpoint for scores of samples: chats of OpenAI's form, one number back.

Tenants choose a model among those that the operator allows, and write the messages. The address and
the key are the operator's.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from services.gateway.settings import GatewaySettings
from tunery.graders.grader import Grader, GraderRefused, ScoreMessage, ScoreModel, parse, parts_of
from tunery.graders.grading import Grade, ScoreUnavailable, grade, questions_of
from tunery.graders.model_scores import request_body, score_of
from tunery.platform.chat_endpoint import ChatEndpoint, EndpointError

TIMEOUT_S: Final = 30.0  # of one try
TRIES_MAX: Final = 3
PAUSE_S: Final = 0.5  # before the second try; twice that before the third
AT_ONCE_MAX: Final = 8  # of one process
NO_ENDPOINT: Final = (
    "score_model asks a model, and no endpoint for such models is configured here; use "
    "text_similarity or string_check"
)


class ScoreEndpoint:
    """The endpoint of the settings.

    pause_s: before a second try
    """

    def __init__(self, settings: GatewaySettings, pause_s: float = PAUSE_S) -> None:
        self._is_there = settings.score_url is not None
        self._models = settings.score_models
        self._endpoint = ChatEndpoint(
            settings.score_url or "",
            None if settings.score_key is None else settings.score_key.get_secret_value(),
            timeout_s=TIMEOUT_S,
            tries_max=TRIES_MAX,
            pause_s=pause_s,
            at_once_max=AT_ONCE_MAX,
        )

    def problem(self, grader: Grader) -> str | None:
        """Why the models of a grader are not asked here; None: they are, or there are none."""
        for part in parts_of(grader):
            if not isinstance(part, ScoreModel):
                continue
            if not self._is_there:
                return NO_ENDPOINT
            if self._models and part.model not in self._models:
                return f"{part.model!r} gives no scores here; there are {', '.join(self._models)}"
        return None

    def problem_of(self, declaration: Mapping[str, Any] | None) -> str | None:
        """Return the `problem` of a declaration; None if it is malformed (reported elsewhere)."""
        try:
            return None if declaration is None else self.problem(parse(declaration))
        except GraderRefused:
            return None

    async def grade(self, grader: Grader, item: Any, output_text: str) -> Grade:
        """Grade a sample; its models are asked at the same time."""
        questions = questions_of(grader, item, output_text)
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
            return score_of(await self._endpoint.complete(request_body(part, messages)))
        except EndpointError as error:
            return ScoreUnavailable(str(error))
        except ScoreUnavailable as error:
            return error

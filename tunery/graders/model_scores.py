"""Questions to a scoring model and scores from its answers, as OpenAI's chat completions.

Pure: callers send the question and wait for the answer.
"""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tunery.graders.grader import ScoreMessage, ScoreModel
from tunery.graders.grading import PARSE_ERROR, REFUSAL_ERROR, ScoreUnavailable

SHOWN: Final = 80  # characters of an answer in a message
RESULT: Final = "result"
FORM: Final[Mapping[str, Any]] = {
    "type": "json_schema",
    "json_schema": {
        "name": "score",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {RESULT: {"type": "number"}},
            "required": [RESULT],
            "additionalProperties": False,
        },
    },
}


def request_body(part: ScoreModel, messages: Sequence[ScoreMessage]) -> dict[str, Any]:
    """The body of `POST /chat/completions`; the answer is to be `{"result": NUMBER}`.

    messages: those of the grader with their variables replaced
    """
    low, high = part.range
    rule = f'Answer with JSON, {{"{RESULT}": NUMBER}}, and a number from {low:g} to {high:g}.'
    sampling = {
        "temperature": part.temperature,
        "seed": part.seed,
        "top_p": part.top_p,
        "max_completion_tokens": part.max_completion_tokens,
    }
    return {
        "model": part.model,
        "messages": [
            {"role": "system", "content": rule},
            *({"role": message.role, "content": message.content} for message in messages),
        ],
        "response_format": dict(FORM),
        **{name: value for name, value in sampling.items() if value is not None},
    }


def score_of(answer: Any) -> float:
    """The number in the body of an answer. Raises `ScoreUnavailable` with OpenAI's name for why."""
    try:
        message = answer["choices"][0]["message"]
        refusal, text = message.get("refusal"), message.get("content")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise ScoreUnavailable("the endpoint's answer is no chat completion") from None
    if refusal:
        raise ScoreUnavailable(f"the model refused: {_shown(refusal)}", REFUSAL_ERROR)
    try:
        value = json.loads(text)
        number = value[RESULT] if isinstance(value, dict) else value
    except (TypeError, ValueError, KeyError, RecursionError):
        number = None
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    if not is_number or not math.isfinite(number):
        raise ScoreUnavailable(f"the model gave no number: {_shown(text)}", PARSE_ERROR)
    return float(number)


def _shown(text: Any) -> str:
    return repr(text if len(str(text)) <= SHOWN else f"{str(text)[:SHOWN]}…")

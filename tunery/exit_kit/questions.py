"""Questions that the old model and the new one answer, from rows that neither should have seen."""

import json
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tunery.comparison.models import HeldOutQuestion
from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows

QUESTIONS_MAX: Final = 64  # of a job


def questions_of(path: Path) -> list[HeldOutQuestion]:
    """Return up to QUESTIONS_MAX questions of a file, of the same file always the same ones.

    Rows that end with a call of a tool are passed over: their answers are no texts. Raises OSError.
    """
    questions: dict[str, HeldOutQuestion] = {}
    with open_rows(path) as opened:
        for _, conversation in Checker().conversations(opened):
            *asked, answer = (dict(message) for message in conversation.messages)
            reference = answer.get("content")
            if not asked or answer.get("role") != "assistant" or not isinstance(reference, str):
                continue
            if not reference or answer.get("tool_calls"):
                continue
            text = json.dumps([asked, conversation.tools], sort_keys=True)
            name = blake2b(text.encode(), digest_size=12).hexdigest()
            questions.setdefault(name, HeldOutQuestion(name, asked, conversation.tools, reference))
    return [questions[name] for name in sorted(questions)[:QUESTIONS_MAX]]

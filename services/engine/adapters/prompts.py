"""Questions as token ids, with the tokenizer and the chat template that trainings use.

What a user writes stays text, also where it looks like the end of a turn.
"""

from collections.abc import Sequence
from pathlib import Path

from services.engine.ports import Refusal
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer
from tunery.work.engine import MALFORMED, TOO_LONG, UNSUPPORTED, Question, QuestionRefused


class Prompts:
    """The tokenizer of a base model."""

    def __init__(self, base: Path) -> None:
        """Raises Refusal for a folder without a usable tokenizer."""
        try:
            self._tokenizer = Tokenizer.load(base)
        except BaseUnusable as error:
            raise Refusal(UNSUPPORTED, f"This base model cannot be asked: {error}.") from error

    def encode(self, question: Question) -> Sequence[int]:
        """The tokens that the model reads. Raises Refusal when its template cannot write them."""
        if question.prompt is not None:
            return self._tokenizer.encode_text(question.prompt)
        try:
            return self._tokenizer.encode_question(list(question.messages), None)
        except TemplateError as error:
            message = f"The chat template refuses these messages: {error}."
            raise Refusal(MALFORMED, message) from error

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self._tokenizer.decode(ids, special=False)


def too_long(context_tokens: int, asked_tokens: int) -> QuestionRefused:
    """The refusal of a question that does not fit, in the words of OpenAI's API."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, your messages "
        f"resulted in {asked_tokens} tokens. Please reduce the length of the messages."
    )
    return QuestionRefused(TOO_LONG, message)

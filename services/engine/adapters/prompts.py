"""Questions as token ids, with the tokenizer and the chat template that trainings use.

What a user writes stays text, also where it looks like the end of a turn.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from services.engine.adapters.tool_calls import CallForm, CallReader, learn_form
from services.engine.ports import Refusal, Say
from tunery.data.dialects.tools import decode_arguments
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer
from tunery.work.engine import MALFORMED, TOO_LONG, UNSUPPORTED, Question, QuestionRefused

NO_TOOLS: Final = (
    "The chat template of this base model knows no tools, or no calls that can be told from text. "
    "Leave out `tools`, or describe them in a message."
)


class Prompts:
    """The tokenizer of a base model."""

    def __init__(self, base: Path) -> None:
        """Raises Refusal for a folder without a usable tokenizer."""
        try:
            self._tokenizer = Tokenizer.load(base)
        except BaseUnusable as error:
            raise Refusal(UNSUPPORTED, f"This base model cannot be asked: {error}.") from error
        self._form = self._learn_form()

    def encode(self, question: Question) -> Sequence[int]:
        """The tokens that the model reads. Raises Refusal when its template cannot write them."""
        if question.prompt is not None:
            return self._tokenizer.encode_text(question.prompt)
        if question.tools and self._form is None:
            raise Refusal(MALFORMED, NO_TOOLS)
        messages = [decode_arguments(message) for message in question.messages]
        try:
            return self._tokenizer.encode_question(messages, list(question.tools) or None)
        except TemplateError as error:
            message = f"The chat template refuses these messages: {error}."
            raise Refusal(MALFORMED, message) from error

    def with_calls(self, question: Question, say: Say) -> Say:
        """Wrap `say`: parse calls of the question's tools out of the model's text."""
        if not question.tools or self._form is None:
            return say
        return CallReader(self._form, say)

    def _learn_form(self) -> CallForm | None:
        """Learn how the template writes calls; None: answers do not show where a call begins."""
        write = self._tokenizer.write_chat
        form = learn_form(write, partial(write, add_generation_prompt=True))
        if form is None or self.decode(self._tokenizer.encode_text(form.begin)) != form.begin:
            return None
        return form

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

"""Questions as token ids, with the tokenizer and the chat template that trainings use.

What a user writes stays text, also where it looks like the end of a turn.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from msgspec import DecodeError

from services.engine.adapters.constraints import Constraint, constraint_of
from services.engine.adapters.own_tokenizer import OwnTokenizer
from services.engine.adapters.tool_calls import CallForm, CallReader, learn_form
from services.engine.ports import Refusal, Say, WeightFiles
from tunery.data.dialects.tools import decode_arguments
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import BaseUnusable, Tokenizer
from tunery.work.engine import MALFORMED, TOO_LONG, UNSUPPORTED, Question, QuestionRefused

#: how calls are written where the chat template does not say it
DESCRIBED: Final = CallForm("", "name", "arguments")
NO_EMBEDDINGS: Final = (
    "The engine that serves this model makes no embeddings. Those of base models and versions come "
    "from llama.cpp on the machine of the API."
)
DESCRIPTION: Final = (
    "You may call a function. To do so, answer with nothing but JSON of the form "
    '{"name": its name, "arguments": an object of its parameters}. The functions:'
)


class Prompts:
    """The tokenizer of a model.

    ends: ids of the tokens that end an answer of a version with its own; empty: the base model's
    """

    def __init__(self, files: WeightFiles) -> None:
        """Raises Refusal for a folder without a usable tokenizer."""
        try:
            own = None if files.tokenizer is None else OwnTokenizer(files.tokenizer)
            self._tokenizer = own or Tokenizer.load(files.folder)
        except BaseUnusable as error:
            raise Refusal(UNSUPPORTED, f"This model cannot be asked: {error}.") from error
        self.ends = () if own is None else own.stop_ids
        self.form = self._learn_form()  # None: the template says nothing of calls

    def encode(self, question: Question) -> Sequence[int]:
        """The tokens that the model reads. Raises Refusal when its template cannot write them, and
        where an embedding is wanted.
        """
        if question.embed:
            raise Refusal(UNSUPPORTED, NO_EMBEDDINGS)
        if question.prompt is not None:
            return self.encode_text(question.prompt)
        tools = list(question.tools) or None
        try:
            messages = [decode_arguments(message) for message in question.messages]
        except DecodeError as error:
            message = "The arguments of a call in `messages` are no JSON."
            raise Refusal(MALFORMED, message) from error
        if self.form is None:
            messages, tools = described(messages, question.tools), None
        try:
            ids = self._tokenizer.encode_question(messages, tools)
        except TemplateError as error:
            message = f"The chat template refuses these messages: {error}."
            raise Refusal(MALFORMED, message) from error
        if question.forced and (begun := self._call_form.begin + self._call_form.gap):
            ids = [*ids, *self._tokenizer.encode_text(begun)]
        return ids

    def encode_text(self, text: str) -> Sequence[int]:
        """The tokens of a text as it is."""
        return self._tokenizer.encode_text(text)

    def constraint(self, question: Question) -> Constraint | None:
        """The grammar that constrains the answer; None: any text is allowed."""
        return constraint_of(question, self._call_form)

    def with_calls(self, question: Question, say: Say) -> Say:
        """Wrap `say`: parse calls of the question's tools out of the model's text."""
        if not question.tools:
            return say
        return CallReader(self._call_form, say, forced=bool(question.forced))

    @property
    def _call_form(self) -> CallForm:
        return self.form or DESCRIBED

    def end_texts(self) -> list[str]:
        """The texts of `ends`."""
        return [self._tokenizer.decode([end]) for end in self.ends]

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


def described(messages: list[Any], tools: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The conversation for a template without tools: these are described, calls and results are
    text.
    """
    said = [_as_text(message) for message in messages]
    if tools:
        functions = (json.dumps(tool["function"]) for tool in tools)
        text = "\n".join((DESCRIPTION, *functions))
        # to the first message: not every template knows the role `system`
        said[0] = {**said[0], "content": f"{text}\n\n{said[0]['content']}"}
    return said


def _as_text(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"The function returned: {message['content']}"}
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    if not calls:
        return message
    text = "\n".join(filter(None, (message["content"], *map(json.dumps, calls))))
    return {"role": message["role"], "content": text}


def too_long(context_tokens: int, asked_tokens: int) -> QuestionRefused:
    """The refusal of a question that does not fit, in the words of OpenAI's API."""
    message = (
        f"This model's maximum context length is {context_tokens} tokens. However, your messages "
        f"resulted in {asked_tokens} tokens. Please reduce the length of the messages."
    )
    return QuestionRefused(TOO_LONG, message)

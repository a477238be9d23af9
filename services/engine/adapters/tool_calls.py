"""Calls of tools: how a chat template writes them, and the calls in what a model writes.

How a call looks is learnt from the template: it writes a made-up call, and the text around that
call's JSON is what every call has.
"""

import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

from msgspec.structs import replace

from services.engine.ports import Say
from tunery.data.tokens.chat_template import TemplateError
from tunery.work.engine import AnswerEnded, QuestionRefused, Reply, Spent, TextAdded, ToolCall

NAME: Final = "made_up_tool"
ARGUMENT: Final = "made_up_argument"
PROBE_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "Made up.",
        "parameters": {"type": "object", "properties": {ARGUMENT: {"type": "string"}}},
    },
}
ASKED: Final[dict[str, Any]] = {"role": "user", "content": "Hi"}
CALLED: Final[dict[str, Any]] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": "call00000",  # some templates want nine letters or digits
            "function": {"name": NAME, "arguments": {ARGUMENT: "made up"}},
        }
    ],
}
_JSON: Final = json.JSONDecoder()


class Rendering(Protocol):
    def __call__(self, messages: list[dict[str, Any]], tools: list[Any] | None, /) -> str:
        """Render the template. Raises TemplateError."""


@dataclass(frozen=True)
class CallForm:
    """How a template writes a call of a tool."""

    begin: str  # the text before its JSON, empty: the call is all of the answer
    # name, arguments: fields of its JSON
    name: str
    arguments: str
    gap: str = ""  # the text between `begin` and the JSON

    def calls_in(self, text: str) -> tuple[str, tuple[ToolCall, ...]]:
        """The text before the first call, and the calls; none where any is malformed."""
        said, *written = text.split(self.begin) if self.begin else ("", text)
        calls: list[ToolCall] = []
        for part in written:
            try:
                value, _ = _JSON.raw_decode(part.lstrip())
            except ValueError:
                return text, ()
            for call in value if isinstance(value, list) else [value]:
                if (known := self._call(call)) is None:
                    return text, ()
                calls.append(known)
        return (said.rstrip(), tuple(calls)) if calls else (text, ())

    def is_begun(self, text: str) -> int | None:
        """Return where a call begins, or may begin at the end of a text; None: nowhere."""
        if not self.begin:
            return 0 if text.lstrip()[:1] in ("", "{", "[") else None
        if (at := text.find(self.begin)) >= 0:
            return at
        longest = min(len(text), len(self.begin) - 1)
        for length in range(longest, 0, -1):
            if text.endswith(self.begin[:length]):
                return len(text) - length
        return None

    def _call(self, value: Any) -> ToolCall | None:
        if not isinstance(value, dict) or not isinstance(value.get(self.name), str):
            return None
        arguments = value.get(self.arguments, {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return ToolCall(value[self.name], text)


def learn_form(write: Rendering, write_prompt: Rendering) -> CallForm | None:
    """How a template writes calls; None: it knows no tools, or writes calls in no form of JSON.

    write: renders a conversation. write_prompt: renders one up to where the model answers.
    """
    try:
        prompt = write_prompt([ASKED], [PROBE_TOOL])
        text = write([ASKED, CALLED], [PROBE_TOOL])
    except TemplateError:
        return None
    if NAME not in prompt:
        return None
    start = _common(prompt, text)
    for at in (index for index in range(start, len(text)) if text[index] == "{"):
        try:
            value, _ = _JSON.raw_decode(text, at)
        except ValueError:
            continue
        if (fields := _fields(value)) is not None:
            before = text[start:at]
            words = before.rstrip().removesuffix("[").split()
            if not words:
                return CallForm("", *fields)
            return CallForm(words[-1], *fields, before.rpartition(words[-1])[2])
    return None


def _common(first: str, second: str) -> int:
    """Return the length of the common beginning of two texts."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(first), len(second)))


def _fields(value: Any) -> tuple[str, str] | None:
    """The fields with the name and the arguments of the made-up call."""
    if not isinstance(value, dict):
        return None
    name = next((key for key, held in value.items() if held == NAME), None)
    arguments = next((key for key, held in value.items() if ARGUMENT in str(held)), None)
    return None if name is None or arguments is None else (name, arguments)


class CallReader:
    """Passes an answer on, and keeps back what may be calls of tools until it has ended."""

    def __init__(self, form: CallForm, say: Say, *, forced: bool = False) -> None:
        """forced: the prompt ends where a call begins, so the answer is the rest of it."""
        self._form, self._say = form, say
        self._begun = form.begin if forced else ""
        self._kept, self._is_text = self._begun, False
        self._logprobs: tuple[dict[str, Any], ...] = ()

    def __call__(self, reply: Reply) -> bool:
        match reply:
            case TextAdded():
                return self._add(reply)
            case AnswerEnded():
                return self._end(reply)
            case QuestionRefused():
                return self._say(reply)

    def _add(self, part: TextAdded) -> bool:
        self._kept += part.text
        self._logprobs += part.logprobs
        is_text = self._is_text and not self._form.begin  # then a call is all of the answer
        begun = None if is_text else self._form.is_begun(self._kept)
        ready = len(self._kept) if begun is None else begun
        text, self._kept = self._kept[:ready], self._kept[ready:]
        if not text and not self._logprobs:
            return self._say(TextAdded("", spent=part.spent))
        return self._pass_on(text, part.spent)

    def _end(self, ended: AnswerEnded) -> bool:
        text, calls = self._form.calls_in(self._kept)
        if ended.finish_reason == "length":
            text, calls = self._kept.removeprefix(self._begun), ()
        if text and not self._pass_on(text, ended.spent):
            return False
        if not calls:
            return self._say(ended)
        return self._say(replace(ended, finish_reason="tool_calls", tool_calls=calls))

    def _pass_on(self, text: str, spent: Spent) -> bool:
        logprobs, self._logprobs, self._is_text = self._logprobs, (), True
        return self._say(TextAdded(text, logprobs, spent))

"""Find what a base model's chat template can show: rows with and without tools and reasoning.

Rows are prepared as a job prepares them, so that a refusal has the reason of a job.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from schemas.model import TemplateProof
from tunery.data.dialects.conversation import Conversation
from tunery.data.findings.finding import Note
from tunery.data.preparing import DataRefused, prepare
from tunery.data.tokens.chat_template import TemplateError
from tunery.data.tokens.tokenizer import Tokenizer

LENGTH: Final = 1_024  # tokens of a packed row: some templates write hundreds around a message
QUESTION: Final = "Which lamp is on the wall?"
ANSWER: Final = "The grey one."
Row: TypeAlias = dict[str, Any]
WEATHER: Final = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Say what the weather is.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL: Final = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Ulm"}'},
}


def _user(text: str) -> Row:
    return {"role": "user", "content": text}


def _answer(text: str, **more: Any) -> Row:
    return {"role": "assistant", "content": text, **more}


PLAIN_ROWS: Final = tuple(
    {"messages": [_user(f"{QUESTION} {words}"), _answer(ANSWER + words)]}
    for words in (" Lamp wall door." * count for count in range(1, 7))
)
TOOL_ROW: Final = {
    "messages": [
        _user("What is the weather in Ulm?"),
        _answer("", tool_calls=[CALL]),
        {"role": "tool", "tool_call_id": CALL["id"], "content": "Rain."},
        _answer("It rains in Ulm."),
    ],
    "tools": [WEATHER],
}
REASONING_ROW: Final = {
    "messages": [_user(QUESTION), _answer(ANSWER, reasoning_content="The red one is on the table.")]
}


class TemplateResult(NamedTuple):
    """Abilities of a template, and the packed rows that a training can be tried with."""

    proof: TemplateProof
    shard: Path
    notes: tuple[str, ...]  # reasons of what it cannot show


def prove_template(folder: Path, work: Path) -> TemplateResult:
    """Try the template in a base model's folder. `work`: an empty folder for what is written.

    Raises `DataRefused` where plain rows are refused, and as `Tokenizer.load`.
    """
    words = Tokenizer.load(folder)
    shard = _prepared(folder, work / "plain", PLAIN_ROWS)
    refusals: dict[str, str] = {}
    for kind, row in (("tools", TOOL_ROW), ("reasoning", REASONING_ROW)):
        try:
            _prepared(folder, work / kind, (row,))
        except DataRefused as error:
            refusals[kind] = f"rows with {kind} are refused: {error}"
    proof = TemplateProof(
        streams=_streams(words),
        end_token=_end_token(words),
        tools="tools" not in refusals,
        reasoning="reasoning" not in refusals,
    )
    return TemplateResult(proof, shard, tuple(refusals.values()))


def _prepared(folder: Path, dest: Path, rows: Sequence[Row]) -> Path:
    """The shard of some rows. Raises as `prepare`."""
    file = dest.with_suffix(".jsonl")
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return prepare(file, folder, dest, max_length=LENGTH, validation_fraction_ppm=0).train_path


def _streams(words: Tokenizer) -> bool:
    """Return whether a second question begins with what the first one was."""
    first = [_user(QUESTION)]
    try:
        before = words.encode_question(first, None)
        after = words.encode_question([*first, _answer(ANSWER), _user(QUESTION)], None)
    except TemplateError:
        return False
    return after[: len(before)] == before


def _end_token(words: Tokenizer) -> str:
    """Return what the template writes after the last answer, and a model learns."""
    messages = [_user(QUESTION), _answer(ANSWER)]
    rendered = words.render(Conversation(messages, [False, True]))
    if isinstance(rendered, Note):
        return ""
    start, end = rendered.trained[-1]
    return rendered.text[start:end].rpartition(ANSWER)[2].strip()

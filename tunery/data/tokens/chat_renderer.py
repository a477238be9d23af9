"""Renders chats with a base model's template, and locates the turns of the assistant.

A conversation is rendered once. If the text has the known layout of its sequence of roles, the
layout gives the spans of the assistant's turns. Otherwise the conversation is rendered a second
time with marks; both texts must be equal, so that a template that reacts to marks is reported and
never trained on.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from tunery.data.dialects.conversation import REASONING, REASONING_NAMES, Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.findings.finding import Note, excerpt
from tunery.data.tokens import message_marks
from tunery.data.tokens.chat_template import Template, TemplateError
from tunery.data.tokens.message_marks import MarkedText
from tunery.data.tokens.turn_format import TurnFormat, learn_ending, learn_header

# Learns what a chat template writes around the messages of conversations with the same roles.
#
# Most templates write the same text around the same sequence of roles, whatever the messages are.
# The positions of all messages then follow from their lengths. They are used only for a text that
# matches the layout exactly; for any other, `turns` returns None.

Roles: TypeAlias = tuple[str, ...]
PLAIN_KEYS: frozenset[str] = frozenset(("role", "content"))


@dataclass(frozen=True, slots=True)
class TemplateLayout:
    """The text that a template writes around the messages of one sequence of roles."""

    around: tuple[str, ...]  # the text before each message, and the text after the last one
    # for each assistant message, by how many characters its turn begins before the message and ends
    # after it
    reach: dict[int, tuple[int, int]]

    def turns(self, messages: list[Object], text: str) -> dict[int, tuple[int, int]] | None:
        """The span of each assistant turn in a text; None when the text has another layout."""
        pieces: list[str] = []
        turns: dict[int, tuple[int, int]] = {}
        at = 0
        for number, message in enumerate(messages):
            content = message["content"]
            at += len(self.around[number])
            if number in self.reach:
                before, after = self.reach[number]
                turns[number] = (at - before, at + len(content) + after)
            at += len(content)
            pieces += (self.around[number], content)
        pieces.append(self.around[-1])
        return turns if "".join(pieces) == text else None


def roles_of(conversation: Conversation) -> Roles | None:
    """The roles that determine the layout; None for a conversation with tools or other keys."""
    if conversation.tools is not None:
        return None
    if any(message.keys() != PLAIN_KEYS for message in conversation.messages):
        return None
    return tuple([message["role"] for message in conversation.messages])


def sample_conversation(roles: Roles) -> Conversation:
    """A conversation with these roles and a distinct text in each message."""
    messages = [{"role": role, "content": f"Text {i}"} for i, role in enumerate(roles)]
    return Conversation(messages, [role == "assistant" for role in roles])


def learn_layout(
    messages: list[Object], marked: MarkedText, turns: dict[int, tuple[int, int]]
) -> TemplateLayout | None:
    """Learn the layout from a conversation that was rendered with marks.

    Returns None when the template changes the text of a message.
    """
    around: list[str] = []
    at = 0
    for number, message in enumerate(messages):
        start, end = marked.messages.get(number, (0, -1))
        if start < at or marked.text[start:end] != message["content"]:
            return None
        around.append(marked.text[at:start])
        at = end
    around.append(marked.text[at:])
    reach = {
        number: (marked.messages[number][0] - start, end - marked.messages[number][1])
        for number, (start, end) in turns.items()
    }
    return TemplateLayout(tuple(around), reach)


# A made-up chat: how the template writes it shows how turns begin and end.
PROBE: Final = [
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Yo"},
    {"role": "user", "content": "And"},
    {"role": "assistant", "content": "Well"},
]
TURN_TOKEN: Final = re.compile(r"<\|[^\s|<>]{1,40}\|>|<(?:start|end)_of_turn>")
LAYOUTS_MAX: Final = 1_000  # sequences of roles whose layout is cached
PART_NAMES: Final[dict[message_marks.PartKind, str]] = {
    "text": "a part of its text",
    "reasoning": "its reasoning",
    "call": "a call of a tool",
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation. Spans are character offsets [start, end) into `text`."""

    text: str  # what the model sees
    trained: tuple[tuple[int, int], ...]  # the spans that are labels
    # special tokens that the user wrote, to be encoded as plain text
    plain: tuple[tuple[int, int], ...]
    turn: int  # start of the last trained turn; the text before it is the prompt of that answer


@dataclass(frozen=True, slots=True)
class SpecialTokens:
    """The special tokens of a base model, as far as they matter to chats."""

    pattern: re.Pattern[str]  # matches any of them
    bos: str | None  # the beginning-of-sequence token; None without one
    stops: frozenset[str]  # those that end an answer, by the base model's configuration
    is_token: Callable[[str], bool]  # whether a text is one token of the base model


class ChatRenderer:
    """A chat template with the tokens of its base model."""

    def __init__(self, template: Template, tokens: SpecialTokens) -> None:
        """Learn how the template writes turns.

        Raises `TemplateError` when it does not fit the tokens, or turns have no end.
        """
        self.template = template
        self._tokens = tokens
        self._content_is_list = False  # multi-modal templates read lists of parts
        self._end_token = ""  # written after the last answer, if the template writes none
        self._layouts: dict[Roles, TemplateLayout | None] = {}
        self._format = TurnFormat(tokens.pattern, tokens.stops)
        self._probe()

    def render(self, conversation: Conversation) -> Rendered | Note:
        """Render a chat and locate the assistant's turns, by the known layout or else by marks.

        The text is always what the template writes for the unchanged row. Returns a `Note` when it
        leaves out a part of an answer that is to be learnt.

        Raises `TemplateError` when the template fails, or changes the text of messages.
        """
        text = self._write(conversation.messages, conversation.tools)
        special = self._has_special(conversation)
        layout = None if special else self._layout(conversation)
        turns = None if layout is None else layout.turns(conversation.messages, text)
        plain: Sequence[tuple[int, int]] = ()
        if turns is None:
            marked = self._render_marked(conversation, quoting=special)
            if marked.text != text:
                raise TemplateError("it changes the text of messages, so answers cannot be located")
            for part in marked.dropped:
                if conversation.trained[part.message]:
                    return _dropped_note(part)
            turns, plain = self._format.locate(marked, conversation), marked.plain
        learnt = [i for i, is_trained in enumerate(conversation.trained) if is_trained]
        for i in learnt:
            if i not in turns:
                raise TemplateError(f"message {i} does not end with a special token")
        trained = tuple(turns[i] for i in learnt)
        turn = max((start for start, _ in trained), default=0)
        return Rendered(text, trained, tuple(plain), turn)

    def render_question(self, messages: list[Object], tools: list[Any] | None) -> Rendered:
        """Render a conversation up to where the model answers.

        Raises `TemplateError` when the template fails, or changes the text of messages.
        """
        text = self._write(messages, tools, add_generation_prompt=True)
        conversation = Conversation(messages, [False] * len(messages), tools)
        plain: Sequence[tuple[int, int]] = ()
        if self._has_special(conversation):
            marked = self._render_marked(conversation, quoting=True, add_generation_prompt=True)
            if marked.text != text:
                raise TemplateError("it changes texts with special tokens, so they are not safe")
            plain = marked.plain
        return Rendered(text, (), tuple(plain), len(text))

    @property
    def end_token(self) -> str:
        """Token appended to the last answer if the template writes no end; else empty."""
        return self._end_token

    def _probe(self) -> None:
        question = self._write_question(add_generation_prompt=False)
        prompted = self._write_question(add_generation_prompt=True)
        self._check_family(prompted)
        header = learn_header(self._tokens.pattern, question, prompted)
        self._format = TurnFormat(self._tokens.pattern, self._tokens.stops, header)
        try:
            probe = Conversation(PROBE, [False, True, False, True])
            marked = self._render_unchanged(probe)
        except TemplateError:  # some templates write one answer only
            probe = Conversation(PROBE[:2], [False, True])
            marked = self._render_unchanged(probe)
        self._format = self._learn_format(marked, probe)
        turns = self._format.locate(marked, probe)
        for number in range(1, len(probe.messages), 2):
            if not self._tokens.pattern.search(marked.text, *turns.get(number, (0, 0))):
                raise TemplateError(
                    "no special token follows an assistant turn, so the model would not learn to "
                    "stop: end each turn with the end-of-sequence token, or name the token that "
                    "ends a turn in generation_config.json (eos_token_id)"
                )

    def _write_question(self, *, add_generation_prompt: bool) -> str:
        """The first message of the probe, in the form of content that the template reads."""
        question = PROBE[:1]
        text = self._write(question, None, add_generation_prompt=add_generation_prompt)
        if question[0]["content"] in text or self._content_is_list:
            return text
        self._content_is_list = True
        with suppress(TemplateError):
            listed = self._write(question, None, add_generation_prompt=add_generation_prompt)
            if question[0]["content"] in listed:
                return listed
        self._content_is_list = False
        return text

    def _learn_format(self, marked: message_marks.MarkedText, probe: Conversation) -> TurnFormat:
        """How the turns of the probe begin and end; sets the end token of the last answer."""
        text, spans = marked.text, marked.messages
        answers = [i for i in range(1, len(probe.messages), 2) if i in spans and i - 1 in spans]
        matched = [
            self._format.match_header(text, spans[i - 1][1], spans[i][0])[0] for i in answers
        ]
        after_first = text[spans[1][1] : spans[2][0]] if 1 in spans and 2 in spans else ""
        after_last = text[spans[answers[-1]][1] :] if answers else ""
        if not self._tokens.pattern.search(after_last) and not marked.blocks:
            next_token = self._tokens.pattern.search(after_first)
            if next_token is not None and next_token[0] in self._tokens.stops:
                self._end_token = next_token[0]
                after_last += self._end_token
                marked.text += self._end_token
        ending = learn_ending(self._tokens.pattern, after_first or after_last, after_last)
        return replace(self._format, header_min=min(matched, default=0), ending=ending)

    def _check_family(self, text: str) -> None:
        """Raise `TemplateError` for unknown turn tokens, and for two BOS tokens."""
        bos = self._tokens.bos
        if bos and text.startswith(bos + bos):
            raise TemplateError(f"it begins with {bos} twice: write it once")
        for match in TURN_TOKEN.finditer(text):
            if not self._tokens.is_token(match[0]):
                raise TemplateError(
                    f"it writes {match[0]}, which is not a token of this base model: the template "
                    "belongs to another family"
                )

    def _write(
        self,
        messages: list[Object],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
        generation: tuple[str, str] = ("", ""),
    ) -> str:
        """Render messages with the chat template. Raises `TemplateError` when it fails."""
        text = self.template.render(
            [self._adapt(message) for message in messages],
            tools,
            add_generation_prompt=add_generation_prompt,
            generation=generation,
        )
        return text + self._end_token if messages[-1]["role"] == "assistant" else text

    def _adapt(self, message: Object) -> Object:
        """The message with the names and types that templates read."""
        if REASONING in message:
            message = {**message, **dict.fromkeys(REASONING_NAMES, message[REASONING])}
        if self._content_is_list:
            return {**message, "content": [{"type": "text", "text": message["content"]}]}
        return message

    def _has_special(self, conversation: Conversation) -> bool:
        texts = message_marks.collect_texts((conversation.messages, conversation.tools))
        return any(self._tokens.pattern.search(text) for text in texts)

    def _layout(self, conversation: Conversation) -> TemplateLayout | None:
        """The layout of conversations with these roles, learned once from a sample."""
        roles = roles_of(conversation)
        if roles is None or (roles not in self._layouts and len(self._layouts) >= LAYOUTS_MAX):
            return None
        if roles not in self._layouts:
            self._layouts[roles] = None  # remains None when the template refuses these roles
            sample = sample_conversation(roles)
            with suppress(TemplateError):
                marked = self._render_unchanged(sample)
                turns = self._format.locate(marked, sample)
                self._layouts[roles] = learn_layout(sample.messages, marked, turns)
        return self._layouts[roles]

    def _render_unchanged(self, conversation: Conversation) -> message_marks.MarkedText:
        """Render with marks. Raises `TemplateError` when the template reacts to them."""
        marked = self._render_marked(conversation, quoting=False)
        if marked.text != self._write(conversation.messages, None):
            raise TemplateError("it changes the text of messages, so answers cannot be located")
        return marked

    def _render_marked(
        self, conversation: Conversation, *, quoting: bool, add_generation_prompt: bool = False
    ) -> message_marks.MarkedText:
        """Render with marks around messages, and around special tokens when `quoting`.

        Raises `TemplateError` when the template fails, or no marks are left for the row.
        """
        messages, tools = conversation.messages, conversation.tools
        marks = message_marks.choose_marks(messages, tools)
        if marks is None:
            raise TemplateError("the row contains nearly all Unicode noncharacters")
        if quoting:
            messages = [{**m, **_quote_message(m, self._tokens.pattern, marks)} for m in messages]
            tools = message_marks.quote_special(tools, self._tokens.pattern, marks)
        tagger = message_marks.MessageTagger(marks)
        tagged = [tagger.tag(number, message) for number, message in enumerate(messages)]
        blocks = (marks.block_opens, marks.block_closes)
        written = self._write(
            tagged, tools, add_generation_prompt=add_generation_prompt, generation=blocks
        )
        return message_marks.remove_marks(written, marks, tagger.parts)


def _dropped_note(part: message_marks.MessagePart) -> Note:
    at = f"/messages/{part.message}"
    return Note("template_drops_text", at, PART_NAMES[part.kind], excerpt(part.text))


def _quote_message(
    message: dict[str, Any], special: re.Pattern[str], marks: message_marks.Marks
) -> Any:
    user_fields = {key: value for key, value in message.items() if key != "role"}
    return message_marks.quote_special(user_fields, special, marks)

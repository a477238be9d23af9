"""Learns what a chat template writes around the messages of conversations with the same roles.

Most templates write the same text around the same sequence of roles, whatever the messages are.
The positions of all messages then follow from their lengths. They are used only for a text that
matches the layout exactly; for any other, `turns` returns None.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tunery.data.dialects.conversation import Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.tokens.message_marks import MarkedText

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

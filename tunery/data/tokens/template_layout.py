"""What a template writes around the messages of one kind of conversation.

Most templates write the same for the same roles in the same order, whatever is said. Then the
place of every message follows from the lengths alone. A text that is not exactly its form is never
guessed at: `turns` answers None.
"""

from dataclasses import dataclass
from typing import TypeAlias

from tunery.data.dialects.detection import Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.tokens.message_marks import Placed

Key: TypeAlias = tuple[str, ...]
PLAIN: frozenset[str] = frozenset(("role", "content"))


@dataclass(frozen=True, slots=True)
class Form:
    """`around[i]`: what stands before message i; the last one ends the text.

    `reach[i]`: for each assistant message how far its turn begins before and ends after what it
    says, in characters.
    """

    around: tuple[str, ...]
    reach: dict[int, tuple[int, int]]

    def turns(self, messages: list[Object], text: str) -> dict[int, tuple[int, int]] | None:
        """Spans of the assistant's turns in a text; None when the text has not this form."""
        pieces: list[str] = []
        found: dict[int, tuple[int, int]] = {}
        at = 0
        for number, message in enumerate(messages):
            said = message["content"]
            at += len(self.around[number])
            if number in self.reach:
                before, after = self.reach[number]
                found[number] = (at - before, at + len(said) + after)
            at += len(said)
            pieces += (self.around[number], said)
        pieces.append(self.around[-1])
        return found if "".join(pieces) == text else None


def key(conversation: Conversation) -> Key | None:
    """Which conversations have one form; None for those with tools or more than roles and texts."""
    if conversation.tools is not None:
        return None
    if any(message.keys() != PLAIN for message in conversation.messages):
        return None
    return tuple([message["role"] for message in conversation.messages])


def example(kind: Key) -> Conversation:
    """A conversation of a kind, with texts of its own."""
    messages = [{"role": role, "content": f"Text {i}"} for i, role in enumerate(kind)]
    return Conversation(messages, [role == "assistant" for role in kind])


def learn(messages: list[Object], placed: Placed, turns: dict[int, tuple[int, int]]) -> Form | None:
    """The form of a conversation rendered with marks; None where messages are not shown as said."""
    around: list[str] = []
    at = 0
    for number, message in enumerate(messages):
        start, end = placed.messages.get(number, (0, -1))
        if start < at or placed.text[start:end] != message["content"]:
            return None
        around.append(placed.text[at:start])
        at = end
    around.append(placed.text[at:])
    reach = {
        number: (placed.messages[number][0] - start, end - placed.messages[number][1])
        for number, (start, end) in turns.items()
    }
    return Form(tuple(around), reach)

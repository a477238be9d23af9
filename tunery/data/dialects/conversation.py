"""`Conversation`: what a checked row of any dialect becomes."""

import re
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from tunery.data.dialects.parsing import Object
from tunery.data.findings.finding import Note

REASONING: Final = "reasoning_content"  # key of a message's reasoning
# What rows and chat templates call it.
REASONING_NAMES: Final = (REASONING, "reasoning", "thinking")
THINK_TAGS: Final = ("<think>", "</think>")  # enclose the reasoning inside the text of an answer
_THOUGHT: Final = re.compile("{}.*?{}".format(*THINK_TAGS), re.DOTALL)


class Conversation(Struct, frozen=True):
    """The messages of a checked row, and which of them a model learns."""

    # role and content (and reasoning and tool fields), as a chat template reads them
    messages: list[Object]
    trained: list[bool]  # for each message, whether the model learns it
    tools: list[Any] | None = None  # OpenAI function tools; None without tools
    # prompt and completion of the row, for a base model without a chat template
    pair: tuple[str, str] | None = None
    plain: bool = False  # the text of `pair` is used without a template (continued pre-training)
    rejected: list[Object] | None = None  # the messages that end with the rejected answer (DPO)
    label: bool | None = None  # whether the answer is wanted (KTO)
    # what a grader reads of a prompt, whose last message stands where the answer will be
    item: Object | None = None

    def rejected_conversation(self) -> "Conversation | None":
        """The conversation that ends with the rejected answer; None without one."""
        if self.rejected is None:
            return None
        trained = [False] * (len(self.rejected) - 1) + [True]
        return Conversation(self.rejected, trained, self.tools)


def without_reasoning(conversation: Conversation) -> Conversation | Note:
    """Remove the reasoning of all answers. Returns a `Note` when nothing is left to learn."""
    if conversation.plain:
        return conversation
    pair, rejected = conversation.pair, conversation.rejected
    changed = replace(
        conversation,
        messages=[_without_reasoning(message) for message in conversation.messages],
        pair=None if pair is None else (pair[0], _after_reasoning(pair[1])),
        rejected=None if rejected is None else [_without_reasoning(m) for m in rejected],
    )
    for number, message in enumerate((*changed.messages, *(changed.rejected or ()))):
        said = message["content"].strip() or message.get("tool_calls")
        if message["role"] == "assistant" and not said and conversation.item is None:
            at = number if number < len(changed.messages) else number - len(changed.messages)
            return Note("content_empty", f"/messages/{at}", "it is all reasoning")
    if changed.rejected == changed.messages:
        return Note("chosen_equals_rejected", detail="but for their reasoning")
    return changed


def _without_reasoning(message: Object) -> Object:
    if message["role"] != "assistant":
        return message
    others = {name: value for name, value in message.items() if name != REASONING}
    return {**others, "content": _after_reasoning(message["content"])}


def _after_reasoning(text: str) -> str:
    """The text without what is between the tags; the first of them may be in the prompt."""
    if THINK_TAGS[1] not in text:
        return text
    return _THOUGHT.sub("", text).rpartition(THINK_TAGS[1])[2].lstrip()

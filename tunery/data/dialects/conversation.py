"""`Conversation`: what a checked row of any dialect becomes."""

from typing import Any, Final

from msgspec import Struct

from tunery.data.dialects.parsing import Object

REASONING: Final = "reasoning_content"  # key of a message's reasoning
# What rows and chat templates call it.
REASONING_NAMES: Final = (REASONING, "reasoning", "thinking")


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

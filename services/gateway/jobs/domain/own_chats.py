"""A job's own chat template and end tokens in a request: what is asked for, and what is wrong."""

from collections.abc import Callable
from typing import Any, Final

from schemas.dataset import ChatFormat
from schemas.sealed import Sealed, SealedField
from tunery.work.own_chat import EOT_TOKENS_MAX, OwnChat

CHAT_TEMPLATE: Final = "training.chat_template"
EOT_TOKENS: Final = "training.eot_tokens"
TEMPLATE_BYTES_MAX: Final = 32_768  # those of the largest families have half of it


def continued_chat(
    chat: OwnChat | None, before: ChatFormat | None, unseal: Callable[[Sealed, SealedField], str]
) -> OwnChat | None:
    """Return the chat format of a training that begins with a version; what it names comes first.

    before: that of the version; None: it has none of its own
    """
    if before is None:
        return chat
    return (chat or OwnChat()).continuing(OwnChat.opened(before, unseal))


def requested_chat(template: Any, eot_tokens: Any) -> tuple[OwnChat | None, list[tuple[str, str]]]:
    """The chat format that a request names, None without one, and all problems: field, message."""
    problems: list[tuple[str, str]] = []
    if template is not None and (not isinstance(template, str) or not template.strip()):
        problems.append((CHAT_TEMPLATE, "must be the text of a Jinja template, and not empty"))
    elif template is not None and (size := len(template.encode())) > TEMPLATE_BYTES_MAX:
        problems.append((CHAT_TEMPLATE, f"has {size} bytes, at most {TEMPLATE_BYTES_MAX}"))
    named = [] if eot_tokens is None else eot_tokens
    if (
        not isinstance(named, list)
        or len(named) > EOT_TOKENS_MAX
        or not all(isinstance(token, str) and token for token in named)
    ):
        text = f'must be a list of at most {EOT_TOKENS_MAX} tokens, for example ["<|im_end|>"]'
        problems.append((EOT_TOKENS, text))
    if problems or (template is None and not named):
        return None, problems
    return OwnChat(template, tuple(dict.fromkeys(named))), []

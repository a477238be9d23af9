"""A job's own chat template and end tokens, in place of its base model's. Pure."""

import hashlib
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from schemas.dataset import ChatFormat
from schemas.envelope import Sha256
from schemas.sealed import REDACTED, Sealed, SealedField

EOT_TOKENS_MAX: Final = 8


class OwnChat(Struct, frozen=True):
    """Texts as the tenant wrote them."""

    template: str | None = None  # a Jinja template; None: the base model's
    eot_tokens: tuple[str, ...] = ()  # end a turn besides the base model's own

    def continuing(self, before: "OwnChat") -> "OwnChat":
        """Return the texts of a training that asks for these, and begins with a version's."""
        template = before.template if self.template is None else self.template
        return OwnChat(template, self.eot_tokens or before.eot_tokens)

    @property
    def sha256(self) -> Sha256:
        """Hash of both: jobs with equal texts have an equal configuration."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()

    @classmethod
    def opened(cls, chat: ChatFormat, unseal: Callable[[Sealed, SealedField], str]) -> "OwnChat":
        """The texts behind those on the log, without what its tenant's key is gone of.

        A tenant without key is erased, and its jobs with it.
        """
        template, tokens = REDACTED, REDACTED
        if chat.template is not None:
            template = unseal(chat.template, "chat_template")
        if chat.eot_tokens is not None:
            tokens = unseal(chat.eot_tokens, "eot_tokens")
        return cls(
            None if template == REDACTED else template,
            () if tokens == REDACTED else _unique(msgspec.json.decode(tokens, type=list[str])),
        )


def _unique(tokens: list[str]) -> tuple[str, ...]:
    """Tokens without those that are there already, as `OwnChat` of a request has them."""
    return tuple(dict.fromkeys(tokens))

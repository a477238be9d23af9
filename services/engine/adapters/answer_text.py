"""The text of an answer as its tokens come, and where it stops."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.engine.ports import Say
from tunery.work.engine import AnswerEnded, Spent, TextAdded

PART_OF_CHARACTER: Final = "\N{REPLACEMENT CHARACTER}"
CHARACTER_TOKENS_MAX: Final = 8  # tokens that one character can take


@dataclass(frozen=True)
class TokenText:
    """A token with the end of its text in the answer."""

    end: int
    logprob: dict[str, Any] | None  # log-probability in the form of OpenAI's API


class AnswerText:
    """Decoder of tokens that keeps back text which may be the beginning of a stop text."""

    def __init__(self, decode: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        """decode: gives the text of token ids."""
        self._decode, self._stop = decode, tuple(stop)
        self._ids: list[int] = []
        self._text = ""
        self._sent = 0  # characters
        self._tokens: list[TokenText] = []  # not sent yet
        self.stopped = False

    def add(self, token: int, logprob: dict[str, Any] | None = None) -> None:
        """The answer continues with a token. After `stopped` nothing counts any more."""
        self._ids.append(token)
        text = self._decode(self._ids)
        if not text.endswith(PART_OF_CHARACTER) or self._is_broken():
            self._text = text
        self._tokens.append(TokenText(len(text), logprob))
        begins = [at for stop in self._stop if (at := self._text.find(stop)) >= 0]
        if begins:
            self._text, self.stopped = self._text[: min(begins)], True

    def take(self, *, complete: bool = False) -> tuple[str, tuple[dict[str, Any], ...]]:
        """Return new text that is safe to send, and the log-probabilities of its tokens.

        complete: no token comes any more
        """
        if complete and not self.stopped:
            self._text = self._decode(self._ids)
        until = len(self._text) if complete or self.stopped else len(self._text) - self._kept_back()
        text, self._sent = self._text[self._sent : until], until
        ready = [token for token in self._tokens if token.end <= until]
        self._tokens = self._tokens[len(ready) :]
        return text, tuple(token.logprob for token in ready if token.logprob is not None)

    def _is_broken(self) -> bool:
        """Return whether the last tokens decode to no character, however many more follow."""
        recent = self._decode(self._ids[-CHARACTER_TOKENS_MAX:])
        return recent == PART_OF_CHARACTER * len(recent) and len(recent) >= CHARACTER_TOKENS_MAX

    def _kept_back(self) -> int:
        """Return the number of characters at the end that may begin a stop text."""
        longest = max(map(len, self._stop), default=1) - 1
        for size in range(min(longest, len(self._text) - self._sent), 0, -1):
            if any(stop.startswith(self._text[-size:]) for stop in self._stop):
                return size
        return 0


class AnswerStream:
    """Sends an answer in parts as its tokens come. written: tokens so far."""

    def __init__(self, text: AnswerText, prompt_tokens: int, say: Say) -> None:
        self._text, self._prompt_tokens, self._say = text, prompt_tokens, say
        self.written = 0

    def add(self, token: int, logprob: dict[str, Any] | None = None) -> bool:
        """The answer continues with a token; returns whether more of it is wanted."""
        self.written += 1
        self._text.add(token, logprob)
        if not self._say_text(complete=self._text.stopped):
            return False
        if self._text.stopped:
            self._say(AnswerEnded("stop", self._prompt_tokens, self.written))
        return not self._text.stopped

    def end(self, finish_reason: str, tokens: int, cached_tokens: int = 0) -> None:
        """No token comes any more. tokens: written, with the one that ends the answer."""
        self.written = tokens
        if self._say_text(complete=True):
            self._say(AnswerEnded(finish_reason, self._prompt_tokens, tokens, cached_tokens))

    def _say_text(self, *, complete: bool) -> bool:
        text, logprobs = self._text.take(complete=complete)
        spent = Spent(self._prompt_tokens, 0, self.written)
        return not (text or logprobs) or self._say(TextAdded(text, logprobs, spent))


def logprob_of(text: str, logprob: float) -> dict[str, Any]:
    """The log-probability of a token in the form of OpenAI's API."""
    return {"token": text, "logprob": logprob, "bytes": list(text.encode())}


def token_logprob(text: str, logprob: float, likely: Sequence[tuple[str, float]]) -> dict[str, Any]:
    """Return the log-probability of a token of an answer, with those of its alternatives."""
    return {
        **logprob_of(text, logprob),
        "top_logprobs": [logprob_of(*alternative) for alternative in likely],
    }

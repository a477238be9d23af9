"""Turns conversations into token ids and loss masks, as the base model reads them."""

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import tokenizers

from tunery.data.dialects.conversation import THINK_TAGS, Conversation
from tunery.data.dialects.parsing import Object
from tunery.data.findings.finding import Note
from tunery.data.tokens import message_marks
from tunery.data.tokens.chat_renderer import ChatRenderer, Rendered, SpecialTokens
from tunery.data.tokens.chat_template import TEMPLATE_DAY, Template, TemplateError
from tunery.platform.blobs.base_files import text_config

CHARACTER_TOKENS_MAX: Final = 8
PARSED_MAX: Final = 4  # cached tokenizers; one of 49,000 tokens takes 55 MB
SPECIAL_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")


class BaseUnusable(Exception):
    """Raised when the directory of a base model holds no usable tokenizer or chat template.

    The message names the file and the reason.
    """


@dataclass(frozen=True, slots=True)
class Encoded:
    """The tokens of one sequence."""

    ids: list[int]  # token ids
    mask: bytes  # one byte per token, 1 for a label
    rendered: Rendered  # the conversation that the tokens come from

    @property
    def trainable(self) -> int:
        """The number of labels. The first token is not one, because no token predicts it."""
        return self.mask[1:].count(1)

    def span(self, start: int, end: int | None) -> "Encoded":
        """The tokens [start, end) as their own sequence."""
        return Encoded(self.ids[start:end], self.mask[start:end], self.rendered)


@lru_cache(maxsize=PARSED_MAX)
def parse_tokenizer(content: bytes) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """Parse `tokenizer.json` twice: as it is, and with every token treated as plain text.

    The result is cached, as parsing takes a quarter of a second: do not change it.

    Raises `Exception` when the content cannot be parsed; the library has no exception of its own.
    """
    both = tokenizers.Tokenizer.from_buffer(content), tokenizers.Tokenizer.from_buffer(content)
    for parsed in both:
        parsed.no_padding()
        parsed.no_truncation()
    both[1].encode_special_tokens = True
    return both


def warm(base_dir: Path) -> None:
    """Parse the tokenizer of a base model, for processes that are forked from this one.

    Nothing is encoded, which would start threads. The caller reports an unusable one.
    """
    with suppress(Exception):  # the library raises bare Exception
        parse_tokenizer((base_dir / "tokenizer.json").read_bytes())


class Tokenizer:
    """The tokenizer and the chat template of a base model.

    vocabulary: number of tokens
    eos: the end-of-sequence token; None when the base model names none
    stop_ids: ids of the tokens that end an answer
    sha256: hash of everything that determines the ids of a text
    template_sha256: hash of everything that determines the text of a conversation
    """

    def __init__(
        self,
        content: bytes,
        special_tokens: dict[str, str],
        template: str | None,
        stop_ids: Sequence[int] = (),
    ) -> None:
        """Parse the content of `tokenizer.json` and the source of a chat template.

        `stop_ids` are the ids of tokens that end an answer, besides the end-of-sequence token.

        Raises `BaseUnusable` when one of them cannot be used.
        """
        try:
            self._tokens, self._plain = parse_tokenizer(content)
        except Exception as error:  # the library raises bare Exception
            raise BaseUnusable(f"tokenizer.json cannot be read: {error}") from error
        added = self._tokens.get_added_tokens_decoder().values()
        # Templates and answers write the tags of reasoning; some bases call them special.
        special = {t.content for t in added if t.special} - set(THINK_TAGS)
        names = sorted(special, key=lambda name: (-len(name), name))
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")
        self.vocabulary = self._tokens.get_vocab_size(with_added_tokens=True)
        self.eos = special_tokens.get("eos_token")
        self.sha256 = _sha256(content, json.dumps(special_tokens, sort_keys=True).encode())
        self._newline: list[int] = self._tokens.encode("\n", add_special_tokens=False).ids
        named = () if self.eos is None else (self._tokens.token_to_id(self.eos),)
        ids = (number for number in (*stop_ids, *named) if number is not None)
        self.stop_ids = tuple(dict.fromkeys(ids))
        self._chats: ChatRenderer | None = None
        if template is not None:
            stops = {self.eos, *map(self._tokens.id_to_token, stop_ids)}
            try:
                self._chats = ChatRenderer(
                    Template(template, special_tokens),
                    SpecialTokens(
                        pattern=self._special,
                        bos=special_tokens.get("bos_token"),
                        stops=frozenset(stop for stop in stops if stop is not None),
                        is_token=lambda text: self._tokens.token_to_id(text) is not None,
                    ),
                )
            except TemplateError as error:
                raise BaseUnusable(f"the chat template is unusable: {error}") from error
        end = "" if self._chats is None else self._chats.end_token
        texts = (template or "", TEMPLATE_DAY.isoformat(), end)
        self.template_sha256 = _sha256(*map(str.encode, texts))

    @classmethod
    def load(cls, base_dir: Path, *, has_template: bool = True) -> "Tokenizer":
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a base model.

        has_template: False leaves the chat template out, for texts alone

        Raises `BaseUnusable` when a file is missing or cannot be used.
        """
        path = base_dir / "tokenizer.json"
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BaseUnusable(f"{path.name} cannot be read in {base_dir}: {error}") from error
        config = _read_json(base_dir / "tokenizer_config.json")
        names = {**_read_json(base_dir / "special_tokens_map.json"), **config}
        special = {n: text for n in SPECIAL_NAMES if (text := _token_text(names.get(n)))}
        template = _template_source(base_dir, config) if has_template else None
        return cls(content, special, template, _stop_ids(base_dir))

    @property
    def template(self) -> Template | None:
        """The chat template; None for a base model without one."""
        return None if self._chats is None else self._chats.template

    @property
    def shows_tools(self) -> bool:
        """True if the chat template renders tool definitions."""
        return self.template is not None and "tools" in self.template.reads

    @property
    def shows_calls(self) -> bool:
        """True if the chat template renders tool calls."""
        return self.template is not None and "tool_calls" in self.template.source

    def special_in(self, conversation: Conversation) -> str | None:
        """The first special token of the base model in the texts of a row; None without one."""
        for text in message_marks.collect_texts((conversation.messages, conversation.tools)):
            if match := self._special.search(text):
                return match[0]
        return None

    def render(self, conversation: Conversation) -> Rendered | Note:
        """Render the text that the model will see. Returns a `Note` when that is impossible."""
        if self._chats is None or conversation.plain:
            return self._render_pair(conversation)
        if not self.shows_calls and any("tool_calls" in m for m in conversation.messages):
            return Note("template_without_tools")
        try:
            return self._chats.render(conversation)
        except TemplateError as error:
            return Note("template_failed", detail=str(error))
        except RecursionError:
            return Note("template_failed", detail="the row is nested too deep")

    def encode(self, rows: Sequence[Rendered]) -> list[Encoded]:
        """Encode many rows. Every token that overlaps a trained span is a label."""
        whole = [row.text for row in rows if not row.plain]
        encodings = iter(self._tokens.encode_batch(whole, add_special_tokens=False))
        done: list[Encoded] = []
        for row in rows:
            if row.plain:
                ids, offsets = self._encode_pieces(row)
            else:
                encoding = next(encodings)
                ids, offsets = encoding.ids, encoding.offsets
            done.append(Encoded(ids, _mask(offsets, row.trained), row))
        return done

    def encode_question(self, messages: list[Object], tools: list[Any] | None) -> list[int]:
        """The tokens of a conversation up to where the model answers.

        Special tokens that messages contain are plain text. Raises `TemplateError`.
        """
        if self._chats is None:
            raise TemplateError("the base model has none")
        (encoded,) = self.encode([self._chats.render_question(messages, tools)])
        return encoded.ids

    def write_chat(
        self,
        messages: list[Object],
        tools: list[Any] | None,
        *,
        add_generation_prompt: bool = False,
    ) -> str:
        """Render messages with the chat template. Raises `TemplateError`, also without one."""
        if self._chats is None:
            raise TemplateError("the base model has none")
        return self._chats.template.render(
            messages, tools, add_generation_prompt=add_generation_prompt
        )

    def encode_text(self, text: str) -> list[int]:
        """The tokens of a text that is the whole prompt; special tokens in it are special."""
        ids: list[int] = self._tokens.encode(text).ids
        return ids

    def decode(self, ids: Sequence[int], *, special: bool = True) -> str:
        """The text of token ids, with special tokens or without."""
        text: str = self._tokens.decode(list(ids), skip_special_tokens=not special)
        return text

    def pieces(self, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Yield the text of each token, with the index of its id.

        Tokens that hold a part of a character are joined until the character is complete.
        """
        start = 0
        while start < len(ids):
            end = start + 1
            while (text := self.decode(ids[start:end])).endswith("\N{REPLACEMENT CHARACTER}"):
                if end == min(len(ids), start + CHARACTER_TOKENS_MAX):
                    break
                end += 1
            yield start, text
            start = end

    def _render_pair(self, conversation: Conversation) -> Rendered | Note:
        """Join prompt, completion and end of sequence, for plain text or without a template."""
        if conversation.pair is None:
            return Note("missing_template")
        if self.eos is None:
            return Note("template_failed", detail="the base model names no end-of-sequence token")
        prompt, completion = conversation.pair
        text = f"{prompt}{completion}{self.eos}"
        user_chars = len(prompt) + len(completion)
        plain = tuple(m.span() for m in self._special.finditer(text[:user_chars]))
        return Rendered(text, ((len(prompt), len(text)),), plain, len(prompt))

    def _encode_pieces(self, row: Rendered) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode a text in pieces, so that special tokens which the user wrote stay plain text."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        edges = [0, *(edge for span in row.plain for edge in span), len(row.text)]
        for index in range(len(edges) - 1):
            start, end = edges[index], edges[index + 1]
            if start == end:
                continue
            using = self._plain if index % 2 else self._tokens
            piece = self._encode_piece(using, row.text[start:end], first=start == 0)
            ids += piece[0]
            offsets += [(start + a, start + b) for a, b in piece[1]]
        return ids, offsets

    def _encode_piece(
        self, using: tokenizers.Tokenizer, piece: str, *, first: bool
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode a piece after a line break, so that no prefix space is added within a text."""
        size = len(self._newline)
        if not first:
            encoding = using.encode(f"\n{piece}", add_special_tokens=False)
            if encoding.ids[:size] == self._newline:
                offsets = [(a - 1, b - 1) for a, b in encoding.offsets[size:]]
                return encoding.ids[size:], offsets
        encoding = using.encode(piece, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _mask(offsets: Sequence[tuple[int, int]], trained: Sequence[tuple[int, int]]) -> bytes:
    """One byte per token: 1 when its characters overlap a trained span. Both are in text order."""
    mask = bytearray(len(offsets))
    for start, end in trained:
        first = bisect_right(offsets, start, key=itemgetter(1))
        last = bisect_left(offsets, end, key=itemgetter(0))
        mask[first:last] = b"\1" * (last - first)
    return bytes(mask)


def _sha256(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BaseUnusable(f"{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise BaseUnusable(f"{path.name} is not a JSON object")
    return content


def _stop_ids(base_dir: Path) -> list[int]:
    """The ids of the tokens that end an answer, from `generation_config.json` or `config.json`."""
    for name in ("generation_config.json", "config.json"):
        match _read_json(base_dir / name).get("eos_token_id"):
            case int(number):
                return [number]
            case list(several):
                return [number for number in several if isinstance(number, int)]
            case _:
                pass
    return []


def _token_text(value: object) -> str | None:
    match value:
        case str(text) | {"content": str(text)}:
            return text
        case _:
            return None


def _template_source(base_dir: Path, config: dict[str, Any]) -> str | None:
    """The source in `chat_template.jinja`, or else in the configuration; None without a template.

    The configuration holds a text, or a list of named templates of which `default` is used.
    """
    path = base_dir / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BaseUnusable(f"{path.name} cannot be read: {error}") from error
    match config.get("chat_template"):
        case str(text):
            return text
        case list(named):
            texts = {t.get("name"): t.get("template") for t in named if isinstance(t, dict)}
            default = texts.get("default")
            return default if isinstance(default, str) else None
        case _:
            return None


def context_tokens(base_dir: Path) -> int | None:
    """The maximum number of tokens of a base model according to `config.json`; None if not stated.

    Raises `BaseUnusable` when the file cannot be read.
    """
    config = text_config(_read_json(base_dir / "config.json"))
    positions = config.get("max_position_embeddings", config.get("n_positions"))
    return positions if isinstance(positions, int) and positions > 0 else None

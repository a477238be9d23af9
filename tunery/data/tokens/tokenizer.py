"""Conversations to token ids and loss masks, with the base model's own tokenizer and template.

A conversation is rendered once, and compared with the form of its kind (the same roles in the same
order), which tells what the assistant says. Where it has no such form it is also rendered with
marks: both texts must be equal, so a template that reacts to the marks is named instead of trained
on.
"""

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

from tunery.data.dialects.detection import Conversation
from tunery.data.findings.finding import Note
from tunery.data.tokens import message_marks, template_layout
from tunery.data.tokens.chat_template import TEMPLATE_DAY, Template, TemplateError

PROBE: Final = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]
CHARACTER_TOKENS_MAX: Final = 8
TURN_TOKEN: Final = re.compile(r"<\|[^\s|<>]{1,40}\|>|<(?:start|end)_of_turn>")
FORMS_MAX: Final = 1_000  # kinds of conversations whose form is remembered
PARSED_MAX: Final = 2  # tokenizers that are kept; one of 49,000 tokens takes 55 MB
SPECIAL_NAMES: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")


class BaseUnusable(Exception):
    """The base model's directory cannot tokenise. The message names the file and what to do."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A rendered conversation. Spans are character offsets into `text`.

    `learnt`: spans that are labels. `plain`: special tokens people wrote, encoded as plain text.
    `turn`: start of the last learnt turn; the text before it is the prompt of that answer.
    """

    text: str
    learnt: tuple[tuple[int, int], ...]
    plain: tuple[tuple[int, int], ...]
    turn: int


@dataclass(frozen=True, slots=True)
class Encoded:
    """Token ids, and one mask byte per token: 1 where the token is a label."""

    ids: list[int]
    mask: bytes
    rendered: Rendered

    @property
    def trainable(self) -> int:
        """Labels; the first token of a sequence is none, because nothing predicts it."""
        return self.mask[1:].count(1)

    def span(self, start: int, end: int | None) -> "Encoded":
        """Some of the tokens as a sequence of their own."""
        return Encoded(self.ids[start:end], self.mask[start:end], self.rendered)


@lru_cache(maxsize=PARSED_MAX)
def parsed(content: str) -> tuple[tokenizers.Tokenizer, tokenizers.Tokenizer]:
    """A tokenizer as it is, and one to which no token is special; all who ask share them, so
    nobody may change them. Parsing takes a quarter of a second. Raises bare Exception.
    """
    both = tokenizers.Tokenizer.from_str(content), tokenizers.Tokenizer.from_str(content)
    for each in both:
        each.no_padding()
        each.no_truncation()
    both[1].encode_special_tokens = True
    return both


class Tokenizer:
    """The tokenizer and chat template of a base model directory.

    `sha256` covers everything that decides the ids of a text, `template_sha256` everything that
    decides the text of a conversation.
    """

    def __init__(self, content: str, special_tokens: dict[str, str], template: str | None) -> None:
        """Raises `BaseUnusable`."""
        try:
            self._tokens, self._plain = parsed(content)
        except Exception as error:  # the library raises bare Exception
            raise BaseUnusable(f"tokenizer.json cannot be read: {error}") from error
        added = self._tokens.get_added_tokens_decoder().values()
        names = sorted((t.content for t in added if t.special), key=lambda n: (-len(n), n))
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")
        self.vocabulary = self._tokens.get_vocab_size(with_added_tokens=True)
        self._bos = special_tokens.get("bos_token")
        self.eos = special_tokens.get("eos_token")
        self.sha256 = _sha256(content, json.dumps(special_tokens, sort_keys=True))
        self.template_sha256 = _sha256(template or "", TEMPLATE_DAY.isoformat())
        self._newline: list[int] = self._tokens.encode("\n", add_special_tokens=False).ids
        self.template: Template | None = None
        self._forms: dict[template_layout.Key, template_layout.Form | None] = {}
        self._header = ""
        if template is not None:
            try:
                self.template = Template(template, special_tokens)
                self._header = self._probe(self.template)
            except TemplateError as error:
                raise BaseUnusable(f"the chat template is unusable: {error}") from error

    @classmethod
    def load(cls, base_dir: Path) -> "Tokenizer":
        """Read `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja` of a base model.

        Raises `BaseUnusable`.
        """
        path = base_dir / "tokenizer.json"
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BaseUnusable(f"{path.name} cannot be read in {base_dir}: {error}") from error
        config = _json(base_dir / "tokenizer_config.json")
        names = {**_json(base_dir / "special_tokens_map.json"), **config}
        special = {n: text for n in SPECIAL_NAMES if (text := _token_text(names.get(n)))}
        return cls(content, special, _template_source(base_dir, config))

    @property
    def shows_tools(self) -> bool:
        return self.template is not None and "tools" in self.template.reads

    @property
    def shows_calls(self) -> bool:
        return self.template is not None and "tool_calls" in self.template.source

    def special_in(self, conversation: Conversation) -> str | None:
        """A special token of the base model that stands in people's text, if there is one."""
        for text in message_marks.texts((conversation.messages, conversation.tools)):
            if found := self._special.search(text):
                return found[0]
        return None

    def render(self, conversation: Conversation) -> Rendered | Note:
        """The text the model will see and the spans it learns; a note says why there is none."""
        if self.template is None or conversation.plain:
            return self._render_pair(conversation)
        if not self.shows_calls and any("tool_calls" in m for m in conversation.messages):
            return Note("template_without_tools")
        try:
            return self._place(self.template, conversation)
        except TemplateError as error:
            return Note("template_failed", detail=str(error))
        except RecursionError:
            return Note("template_failed", detail="the row is nested too deep")

    def encode(self, rows: Sequence[Rendered]) -> list[Encoded]:
        """Token ids and masks of many rows. Every token that overlaps a learnt span is a label."""
        whole = [row.text for row in rows if not row.plain]
        encodings = iter(self._tokens.encode_batch(whole, add_special_tokens=False))
        done: list[Encoded] = []
        for row in rows:
            if row.plain:
                ids, offsets = self._encode_pieces(row)
            else:
                encoding = next(encodings)
                ids, offsets = encoding.ids, encoding.offsets
            done.append(Encoded(ids, _mask(offsets, row.learnt), row))
        return done

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, special tokens included."""
        text: str = self._tokens.decode(list(ids), skip_special_tokens=False)
        return text

    def pieces(self, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
        """(index of the first id, text): one token each, or as many as make whole characters."""
        start = 0
        while start < len(ids):
            end = start + 1
            while (text := self.decode(ids[start:end])).endswith("\N{REPLACEMENT CHARACTER}"):
                if end == min(len(ids), start + CHARACTER_TOKENS_MAX):
                    break
                end += 1
            yield start, text
            start = end

    def _probe(self, template: Template) -> str:
        """What the template writes before an answer. Raises `TemplateError` if turns never end."""
        asked = template.render(PROBE[:1], None)
        prompted = template.render(PROBE[:1], None, add_generation_prompt=True)
        self._same_family(prompted)
        placed = self._place(template, Conversation(PROBE, [False, True]))
        start, end = placed.learnt[0] if placed.learnt else (0, 0)
        if not self._special.search(placed.text, start, end):
            raise TemplateError(
                "no special token follows an assistant turn, so the model would not learn to stop: "
                "end each turn with the end-of-sequence token"
            )
        return prompted[len(asked) :] if prompted.startswith(asked) else ""

    def _place(self, template: Template, conversation: Conversation) -> Rendered:
        """Render, and tell what the assistant says: by the known form of such conversations, else
        by marks. Either way the text is the template's own answer to the row as it is."""
        text = template.render(conversation.messages, conversation.tools)
        special = self.special_in(conversation)
        form = None if special else self._form(template, conversation)
        turns = None if form is None else form.turns(conversation.messages, text)
        plain: Sequence[tuple[int, int]] = ()
        if turns is None:
            placed = self._marked(template, conversation, quoting=special is not None)
            if placed.text != text:
                raise TemplateError(
                    "it changes the text of messages, so answers cannot be told apart"
                )
            turns, plain = self._turns(placed, conversation), placed.plain
        learnt = tuple(turns[i] for i in sorted(turns) if conversation.trained[i])
        turn = max((start for start, _ in learnt), default=0)
        return Rendered(text, learnt, tuple(plain), turn)

    def _same_family(self, text: str) -> None:
        """Raises `TemplateError` for tokens that the tokenizer lacks, and for two beginnings."""
        bos = self._bos
        if bos and text.startswith(bos + bos):
            raise TemplateError(f"it begins with {bos} twice: write it once")
        for match in TURN_TOKEN.finditer(text):
            if self._tokens.token_to_id(match[0]) is None:
                raise TemplateError(
                    f"it writes {match[0]}, which is no token of this base model: the template is "
                    "of another family"
                )

    def _form(self, template: Template, conversation: Conversation) -> template_layout.Form | None:
        """The form of such conversations, found once with made-up texts."""
        kind = template_layout.key(conversation)
        if kind is None or (kind not in self._forms and len(self._forms) >= FORMS_MAX):
            return None
        if kind not in self._forms:
            self._forms[kind] = None  # also where the template refuses such roles
            made = template_layout.example(kind)
            with suppress(TemplateError):
                placed = self._marked(template, made, quoting=False)
                if placed.text == template.render(made.messages, None):
                    turns = self._turns(placed, made)
                    self._forms[kind] = template_layout.learn(made.messages, placed, turns)
        return self._forms[kind]

    def _marked(
        self, template: Template, conversation: Conversation, *, quoting: bool
    ) -> message_marks.Placed:
        """Where messages stand, told by marks that travel through the template."""
        messages, tools = conversation.messages, conversation.tools
        marks = message_marks.choose(messages, tools)
        if marks is None:
            raise TemplateError("the row contains nearly all Unicode noncharacters")
        if quoting:
            messages = [{**m, **_quoted(m, self._special, marks)} for m in messages]
            tools = message_marks.quote(tools, self._special, marks)
        messages = [message_marks.tag(message, i, marks) for i, message in enumerate(messages)]
        blocks = (marks.block_opens, marks.block_closes)
        return message_marks.take_out(template.render(messages, tools, generation=blocks), marks)

    def _turns(self, placed: message_marks.Placed, row: Conversation) -> dict[int, tuple[int, int]]:
        """Spans of the assistant's turns by message: from after the header to the end token."""
        answers = [i for i, m in enumerate(row.messages) if m["role"] == "assistant"]
        if len(placed.blocks) == len(answers):
            return dict(zip(answers, placed.blocks, strict=True))
        turns: dict[int, tuple[int, int]] = {}
        quoted = {start for start, _ in placed.plain}
        edges = sorted(placed.messages.values())
        for i in answers:
            if i not in placed.messages:
                continue
            first, last = placed.messages[i]
            before = max((end for _, end in edges if end <= first and end < last), default=0)
            after = min((start for start, _ in edges if start > last), default=len(placed.text))
            header = placed.text.rfind(self._header, before, first) if self._header else -1
            start = header + len(self._header) if header >= 0 else first
            end = last
            for special in self._special.finditer(placed.text, last, after):
                if special.start() not in quoted:
                    end = special.end()
                    break
            turns[i] = (start, end)
        return turns

    def _render_pair(self, conversation: Conversation) -> Rendered | Note:
        """Prompt, completion, end of sequence: for plain text, or a base without a template."""
        if conversation.pair is None:
            return Note("missing_template")
        if self.eos is None:
            return Note("template_failed", detail="the base model names no end-of-sequence token")
        prompt, completion = conversation.pair
        text = f"{prompt}{completion}{self.eos}"
        people = len(prompt) + len(completion)
        plain = tuple(m.span() for m in self._special.finditer(text[:people]))
        return Rendered(text, ((len(prompt), len(text)),), plain, len(prompt))

    def _encode_pieces(self, row: Rendered) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode around special tokens that people wrote; those become ordinary characters."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        edges = [0, *(edge for span in row.plain for edge in span), len(row.text)]
        for index in range(len(edges) - 1):
            start, end = edges[index], edges[index + 1]
            if start == end:
                continue
            using = self._plain if index % 2 else self._tokens
            piece = self._encode_inside(using, row.text[start:end], first=start == 0)
            ids += piece[0]
            offsets += [(start + a, start + b) for a, b in piece[1]]
        return ids, offsets

    def _encode_inside(
        self, using: tokenizers.Tokenizer, piece: str, *, first: bool
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Encode a piece after a line break, so that no prefix space is added in mid-text."""
        size = len(self._newline)
        if not first:
            encoding = using.encode(f"\n{piece}", add_special_tokens=False)
            if encoding.ids[:size] == self._newline:
                offsets = [(a - 1, b - 1) for a, b in encoding.offsets[size:]]
                return encoding.ids[size:], offsets
        encoding = using.encode(piece, add_special_tokens=False)
        return encoding.ids, encoding.offsets


def _mask(offsets: Sequence[tuple[int, int]], learnt: Sequence[tuple[int, int]]) -> bytes:
    """1 for every token whose characters overlap a learnt span. Both are in order of the text."""
    mask = bytearray(len(offsets))
    for start, end in learnt:
        first = bisect_right(offsets, start, key=itemgetter(1))
        last = bisect_left(offsets, end, key=itemgetter(0))
        mask[first:last] = b"\1" * (last - first)
    return bytes(mask)


def _quoted(message: dict[str, Any], special: re.Pattern[str], marks: message_marks.Marks) -> Any:
    people = {key: value for key, value in message.items() if key != "role"}
    return message_marks.quote(people, special, marks)


def _sha256(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part.encode()).digest())
    return digest.hexdigest()


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BaseUnusable(f"{path.name} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise BaseUnusable(f"{path.name} is not a JSON object")
    return content


def _token_text(value: object) -> str | None:
    match value:
        case str(text) | {"content": str(text)}:
            return text
        case _:
            return None


def _template_source(base_dir: Path, config: dict[str, Any]) -> str | None:
    """`chat_template.jinja`, else the configuration's entry: a text, or a list of named ones."""
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
    """How many tokens a base model reads at most, by its `config.json`. Raises `BaseUnusable`."""
    config = _json(base_dir / "config.json")
    known = config.get("max_position_embeddings", config.get("n_positions"))
    return known if isinstance(known, int) and known > 0 else None

"""Rules for the text of any row: forbidden characters, special tokens, placeholders."""

import re
from typing import Final

from tunery.data.findings.finding import Note, excerpt

_CONTROL: Final = re.compile(r"[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
# What datasets write for nothing; `_NO_TEXT` as in Alpaca, in brackets or not.
_PLACEHOLDERS: Final = frozenset(("n/a", "na", "none", "null", "nan", "tbd", "todo", "lorem ipsum"))
_NO_TEXT: Final = re.compile(r"<?no[ _-]?(?:input|output)>?\.?")
# Tokens that chat templates of any family put between turns; `\uff5c` is DeepSeek's wide bar.
SPECIAL: Final = re.compile(
    r"<[|\uff5c][^\s|\uff5c<>]{1,40}[|\uff5c]>|</?s>|<(?:bos|eos|pad|unk)>|<(?:start|end)_of_turn>"
    r"|\[/?INST\]|<</?SYS>>"
)
PLACEHOLDER_CHARS_MAX: Final = 16


def check_text(text: str, at: str, notes: list[Note]) -> None:
    """Note forbidden characters, special tokens and placeholders of a text that is not blank.

    `at` is the JSON pointer of the text.
    """
    if "\0" in text:
        notes.append(Note("nul_character", at, excerpt=excerpt(text)))
    if not text.isprintable():  # quick to compute, and enough for most texts
        if control := _CONTROL.search(text):
            detail = f"U+{ord(control[0]):04X}"
            notes.append(Note("control_character", at, detail, excerpt(text)))
        if _SURROGATE.search(text):
            notes.append(Note("lone_surrogate", at, excerpt=excerpt(text)))
    if ("<" in text or "[" in text) and (special := SPECIAL.search(text)):
        notes.append(Note("special_token_in_text", at, repr(special[0])))
    if is_placeholder(text):
        notes.append(Note("placeholder_text", at, excerpt=excerpt(text)))


def is_placeholder(text: str) -> bool:
    if len(text) > PLACEHOLDER_CHARS_MAX:
        return False
    word = text.strip().lower()
    return word in _PLACEHOLDERS or _NO_TEXT.fullmatch(word) is not None

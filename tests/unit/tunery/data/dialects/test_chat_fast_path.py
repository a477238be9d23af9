"""The fast path and the full check of chat rows agree on every row."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.data.checking import Checker
from tunery.data.containers.reading import open_rows
from tunery.data.dialects import chat_fast_path
from tunery.data.findings.finding import Finding
from tunery.data.findings.limits import DIALECT_ROWS

HEAD = [
    {"messages": [{"role": "user", "content": f"q {n}"}, {"role": "assistant", "content": "a b"}]}
    for n in range(DIALECT_ROWS)
]
TEXTS = st.sampled_from(
    [
        *("", " ", "a", "b", "a ", "n/a", "<noinput>", "<s>", "<b>", "x [1]", "[INST] x", "{}"),
        *(
            "this image",
            "The Following Link",
            'say "hi"',
            "back\\slash",
            "tab\t",
            "bell\x07",
            "\u2028",
        ),
        *(
            "del\x7f",
            "nul\0",
            "é",
            "<|im_end|>",
            "\\begin",
            "\ud83d",
            "<<SYS>>",
            "\uff5c",
            '"role": "x"',
        ),
    ]
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool", "human", "User", 1, None])
MESSAGES = st.fixed_dictionaries(
    {"role": ROLES, "content": TEXTS | st.none() | st.integers()},
    optional={"weight": st.sampled_from([0, 1, 2]), "name": st.just("n"), "x": st.just(1)},
)
TURNS = st.tuples(TEXTS, TEXTS).map(
    lambda said: [
        {"role": "user", "content": said[0]},
        {"role": "assistant", "content": said[1]},
    ]
)
ROWS = st.fixed_dictionaries(
    {"messages": TURNS | st.lists(MESSAGES, max_size=4)},
    optional={"id": st.integers(), "tools": st.just([]), "prompt": st.just("a")},
)
ENCODED = st.builds(
    lambda row, ascii_only, spaced: json.dumps(
        row, ensure_ascii=ascii_only, separators=(", ", " : ") if spaced else (",", ":")
    ).encode("utf-8", "surrogatepass"),
    ROWS,
    st.booleans(),
    st.booleans(),
)
DOUBLED = ENCODED.map(lambda raw: raw.replace(b'"role"', b'"role": "x", "role"', 1))
ODD = st.sampled_from([b"", b" ", b"{}", b"[]", b"{", b"null", b'{"messages"', b"\xef\xbb\xbf{}"])
LINES = st.lists(ENCODED | DOUBLED | ODD | st.tuples(ENCODED, ENCODED).map(b" ".join), max_size=8)


def checked(content: bytes) -> tuple[list[Any], tuple[Finding, ...], int]:
    checker = Checker()
    with open_rows(io.BytesIO(content)) as rows:
        valid = [(row, row_.messages, row_.trained) for row, row_ in checker.conversations(rows)]
    return valid, tuple(checker.findings.listed), checker.rows


@given(LINES, st.sampled_from([b"\n", b"\r\n"]))
def test_fast_path_and_full_check_agree(lines: list[bytes], end: bytes) -> None:
    head = [json.dumps(row).encode() for row in HEAD]
    content = end.join([*head, *lines, *head])
    quickly = checked(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_fast_path, "read", lambda *_: None)
        assert checked(content) == quickly


def test_ordinary_rows_take_the_fast_path() -> None:
    row = json.dumps(HEAD[0]).encode()
    assert chat_fast_path.read(row + b"\n" + row + b"\r\n" + row, 3) is not None
    odd = {"messages": [*HEAD[0]["messages"], {"role": "user", "content": 'a "b" [c] <d> \n'}]}
    odd["messages"].append({"role": "assistant", "content": "e"})
    assert chat_fast_path.read(json.dumps(odd).encode(), 1) is not None

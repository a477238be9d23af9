"""A bounded part of YAML: what is read, what is refused and where, what is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tunery.cli._yaml import DEPTH_MAX, YamlProblem, read_yaml, write_yaml

WORD = st.text(st.characters(codec="utf-8"), max_size=12)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | WORD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORD, inner, max_size=3),
    max_leaves=8,
)


def test_numbers_and_words_are_those_of_yaml_1_2() -> None:
    text = "a: 2e-4\nb: no\nc: 007\nd: 1.\ne: '1'\nf: ~\ng: 2026-11-23\nh: 1:30\ni: .inf\nj: true\n"
    assert read_yaml(text).value == {
        "a": 0.0002,
        "b": "no",
        "c": 7,
        "d": 1.0,
        "e": "1",
        "f": None,
        "g": "2026-11-23",
        "h": "1:30",
        "i": ".inf",
        "j": True,
    }


def test_each_field_has_its_place() -> None:
    positions = read_yaml("version: 1\ntraining:\n  rank: 8\n  layers: [q, v]\n").positions
    assert {path: tuple(position) for path, position in positions.items()} == {
        "version": (1, 1),
        "training": (2, 1),
        "training.rank": (3, 3),
        "training.layers": (4, 3),
        "training.layers.0": (4, 12),
        "training.layers.1": (4, 15),
    }


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "is empty", (1, 1)),
        ("- 1", "must be a mapping of fields, like `version: 1`", (1, 1)),
        ("a: 1\nb: 2\na: 3", "a is there twice", (3, 1)),
        ("a: &x [1]\nb: [*x, *x]", "anchors (&) and aliases (*) are not allowed", (1, 4)),
        ("a: !!python/object:os.system x", "tags (!) are not allowed", (1, 4)),
        ("a: 1\n---\nb: 2", "has more than one document", (2, 1)),
        ("? [a]\n: 1", "names of fields must be words", (1, 3)),
        ("a: " + "[" * 5_000, f"is nested more than {DEPTH_MAX} deep", (1, DEPTH_MAX + 3)),
        ("a: [" + "1," * 5_000 + "]", "has more than 4096 values", (1, 8193)),
        ("a: '" + "x" * 70_000 + "'", "is larger than 64 KiB", (1, 1)),
        ("a: 1\nb: \x01", "has a character that YAML does not allow", (2, 1)),
        ("a: [1,\nb: 2", "is not valid YAML: expected ',' or ']', but got '<stream end>'", (2, 5)),
    ],
)
def test_what_is_no_plain_document_is_refused_with_its_place(
    text: str, message: str, position: tuple[int, int]
) -> None:
    with pytest.raises(YamlProblem) as refused:
        read_yaml(text)
    assert (refused.value.message, tuple(refused.value.position)) == (message, position)


@given(st.dictionaries(WORD, VALUE, min_size=1, max_size=4))
def test_what_is_written_is_read_again(value: dict[str, object]) -> None:
    assert read_yaml(write_yaml(value)).value == value

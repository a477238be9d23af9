"""Report on a terminal."""

import io
from pathlib import Path

from rich.console import Console

from tunery.data.checking import check
from tunery.data.reports.terminal import FINDINGS_SHOWN_MAX, render_report


def shown(content: bytes, base_dir: Path | None = None) -> str:
    out = io.StringIO()
    report = check(io.BytesIO(content), base_dir=base_dir)
    Console(file=out, width=140).print(render_report(report, "rows.jsonl"))
    return out.getvalue()


def test_every_code_has_its_place_and_fix() -> None:
    text = shown(b'{"prompt": "[bold]a", "completion": ""}\n' * 3)
    assert "rejected" in text
    assert "rows.jsonl" in text
    assert text.count("content_empty") == 3
    assert "/completion" in text
    assert "Write the text, or remove the row." in text
    assert "too_few_rows" in text


def test_first_hour_low_counts_agree_with_their_nouns() -> None:
    """ "1 warnings", "1 errors in 0 rows"."""
    rows = b"".join(b'{"prompt": "a%d", "completion": "b"}\n' % number for number in range(40))
    text = shown(b'{"prompt": "a", "completion": ""}\n' + rows)
    assert ", 41 rows, 1 error in 1 row, 2 warnings\n" in text


def test_markup_in_tenant_text_is_escaped() -> None:
    assert "[red]x[/red]" in shown(b"{'a': '[red]x[/red]'}\n")


def test_long_lists_say_how_many_are_hidden() -> None:
    text = shown(b"{'a': 1}\n" * (FINDINGS_SHOWN_MAX + 1234))
    assert "and 1,234 more" in text


def test_tokens_are_shown(base_dir: Path) -> None:
    rows = [b'{"prompt": "a%d", "completion": "b"}' % number for number in range(60)]
    text = shown(b"\n".join(rows), base_dir)
    assert "accepted" in text
    assert "prompt / completion jsonl, 60 rows" in text
    assert "≤ 64" in text


def test_rows_are_shown_as_the_model_sees_them(base_dir: Path) -> None:
    content = b'{"prompt": "Who?\\u001b[31m", "completion": "The keeper."}\n'
    text = shown(content, base_dir)
    _, title, sample = text.partition("row 1 as the model sees it")
    assert title
    assert max(map(len, sample.splitlines())) < 100, "lines are not filled up with blanks"
    assert "The keeper.<|im_end|>" in text
    assert "\x1b" not in text, "no escape sequence of a file reaches the terminal"

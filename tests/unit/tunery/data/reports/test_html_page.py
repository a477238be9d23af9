"""The HTML report: whole, self-contained, and nothing people wrote is obeyed."""

import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

from tunery.data.checking import check
from tunery.data.reports.html_page import SHOWN_MAX, render_page

ATTACK = "</td><script>alert(1)</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_tenant_text_is_escaped(base_dir: Path, write: Callable[..., Path]) -> None:
    rows = [{"prompt": f"{n} {ATTACK}", "completion": f"{ATTACK} {n}"} for n in range(10)]
    rows.append({"prompt": ATTACK, "completion": ATTACK, ATTACK: ATTACK})
    report = check(write([*rows, {"prompt": ATTACK, ATTACK: "x"}]), base_dir=base_dir)
    text = render_page(report, ATTACK)
    tags = Tags(text)
    assert not {"script", "img"} & tags.names
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert "&lt;script&gt;" in text


def test_the_page_loads_no_external_resource() -> None:
    text = render_page(check(io.BytesIO(b"{}\n" * 20)), "rows.jsonl")
    assert not {"link", "script", "iframe", "img"} & Tags(text).names
    assert not re.search(r"(?:src|href)=|url\(|https?://", text)


def test_counts_are_exact_when_the_listing_is_cut() -> None:
    text = render_page(check(io.BytesIO(b"{'a': 1}\n" * 2500)), "rows.jsonl")
    assert "× 2,500" in text
    assert text.count("python_repr") == 1
    assert text.count("<tr><td") >= SHOWN_MAX
    assert "and 2,400 more" in text
    assert "rejected" in text


def test_lengths_and_labels_are_drawn(base_dir: Path, write: Callable[..., Path]) -> None:
    rows = [{"prompt": f"Question {n}?", "completion": "On the rock."} for n in range(10)]
    path = write(json.loads(json.dumps(rows)))
    with_tokens = render_page(check(path, base_dir=base_dir), "rows")
    assert with_tokens.count("<rect") >= 1
    assert "Rows by tokens" in with_tokens
    assert '<span class="learnt"> rock</span>' in with_tokens
    assert "<span> rock</span>" not in with_tokens
    assert "Rows by characters" in render_page(check(path), "rows")

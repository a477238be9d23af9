"""Our printed pages as PDF: the page's own text, so that both have the same content.

The fonts are those that PDF readers have or that come with the library: western Latin, Cyrillic,
Greek without accents, Chinese, Japanese and Korean. An operator's font adds others. Text in letters
that no font has is refused, never left out.
"""

import io
from collections.abc import Mapping
from functools import cache
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from typing import Any, Final, TypeAlias
from xml.sax.saxutils import escape

LATIN: Final = "Helvetica"
VERA: Final = "Vera"  # some more of Latin, such as Turkish
OWN: Final = "Own"
Fonts: TypeAlias = Mapping[str, frozenset[int]]  # code points by name
#: fonts of PDF readers, by the encoding of what they have
READER_FONTS: Final = {
    "shift_jis": "HeiseiMin-W3",
    "gb2312": "STSong-Light",
    "big5": "MSung-Light",
    "euc_kr": "HYSMyeongJo-Medium",
}
HEADINGS: Final = {"h1": 16, "h2": 12}
TEXT_POINTS: Final = 8
MARGIN_POINTS: Final = 42
NUMBER_POINTS: Final = 68
WHEN_POINTS: Final = 90
COLUMNS: Final = 5  # of the invoice's table: what, when, and three numbers


class NotPrintable(Exception):
    """No font has these letters; the message quotes them."""


class _Page(HTMLParser):
    """Takes a page of ours apart. blocks: a heading's or paragraph's tag and text, or a table."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[tuple[str, Any]] = []
        self._rows: list[list[str]] = []
        self._text: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        match tag:
            case "table":
                self._rows = []
            case "tr":
                self._rows.append([])
            case "h1" | "h2" | "p" | "td" | "th":
                self._text = []
            case _:
                pass

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        match tag:
            case "table":
                self.blocks.append((tag, self._rows))
            case "td" | "th":
                self._rows[-1].append(self._take())
            case "h1" | "h2" | "p":
                self.blocks.append((tag, self._take()))
            case _:
                pass

    def _take(self) -> str:
        text, self._text = "".join(self._text or ()), None
        return text


def pdf_of_page(page: str, font: Path | None = None) -> bytes:
    """The PDF of a page, the same bytes for the same page. Raises NotPrintable.

    font: a TrueType font for what the others lack.
    """
    from reportlab.lib.pagesizes import A4
    from reportlab.platypus import Paragraph, SimpleDocTemplate

    reader = _Page()
    reader.feed(page)
    target = io.BytesIO()
    margins = dict.fromkeys(("leftMargin", "rightMargin", "topMargin"), MARGIN_POINTS)
    document = SimpleDocTemplate(
        target, pagesize=A4, bottomMargin=MARGIN_POINTS, invariant=1, title="Invoice", **margins
    )
    fonts = _load_fonts(font)
    flow: list[Any] = []
    for kind, content in reader.blocks:
        if kind == "table":
            flow.append(_table(content, document.width, fonts))
        else:
            points = HEADINGS.get(kind, TEXT_POINTS)
            flow.append(Paragraph(_marked(content, fonts), _style(points, space=points / 2)))
    document.build(flow)
    return target.getvalue()


def _table(rows: list[list[str]], width: float, fonts: Fonts) -> Any:
    """A table whose head is repeated on each page; a row that has fewer cells ends at the right."""
    from reportlab.lib import colors
    from reportlab.platypus import LongTable, Paragraph

    count = max(map(len, rows))
    numbers = 3 if count == COLUMNS else 0
    cells = []
    for row in rows:
        filled = [*row[:1], *[""] * (count - len(row)), *row[1:]]
        cells.append(
            [
                Paragraph(_marked(text, fonts), _style(TEXT_POINTS, right=at >= count - numbers))
                for at, text in enumerate(filled)
            ]
        )
    if numbers:
        rest = width - numbers * NUMBER_POINTS - WHEN_POINTS
        widths = [rest, WHEN_POINTS, *[NUMBER_POINTS] * numbers]
    else:
        widths = [width / count] * count
    lines = [
        ("LINEBELOW", (0, 0), (-1, -1), 0.5, colors.lightgrey),
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
    ]
    return LongTable(cells, colWidths=widths, repeatRows=1, style=lines)


@cache
def _style(points: float, *, space: float = 0, right: bool = False) -> Any:
    from reportlab.lib.styles import ParagraphStyle

    return ParagraphStyle(
        "text",
        fontName=LATIN,
        fontSize=points,
        leading=points * 1.3,
        spaceAfter=space,
        alignment=2 if right else 0,
    )


def _marked(text: str, fonts: Fonts) -> str:
    """The library's markup of a text: each word in a font that has its letters."""
    lines = (
        " ".join(_word(word, fonts) for word in line.split()) for line in text.strip().split("\n")
    )
    return "<br/>".join(lines)


def _word(word: str, fonts: Fonts) -> str:
    """A word in one font, or letter by letter in several. Raises NotPrintable."""
    if (font := _font_of(word, fonts)) is not None:
        return _in_font(word, font)
    runs = groupby(word, lambda letter: _font_of(letter, fonts))
    return "".join(_in_font("".join(letters), font) for font, letters in runs)


def _in_font(text: str, font: str | None) -> str:
    if font is None:
        raise NotPrintable(text)
    return escape(text) if font == LATIN else f'<font name="{font}">{escape(text)}</font>'


def _font_of(text: str, fonts: Fonts) -> str | None:
    """The first font that has all letters of a text."""
    if _is_encodable(text, "cp1252"):
        return LATIN
    for font, glyphs in fonts.items():
        if all(ord(letter) in glyphs for letter in text):
            return font
    encodings = READER_FONTS.items()
    return next((font for encoding, font in encodings if _is_encodable(text, encoding)), None)


def _is_encodable(text: str, encoding: str) -> bool:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return False
    return True


@cache
def _load_fonts(own: Path | None) -> Fonts:
    """Make the library know the fonts; returns the code points of those that it embeds."""
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.cidfonts import UnicodeCIDFont
    from reportlab.pdfbase.ttfonts import TTFont

    for font in READER_FONTS.values():
        pdfmetrics.registerFont(UnicodeCIDFont(font))
    embedded = [TTFont(VERA, "Vera.ttf")]
    if own is not None:
        embedded.append(TTFont(OWN, str(own)))
    for font in embedded:
        pdfmetrics.registerFont(font)
    return {font.fontName: frozenset(font.face.charToGlyph) for font in embedded}

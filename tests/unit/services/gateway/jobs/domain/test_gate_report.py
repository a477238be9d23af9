"""The gate's report: what is on the page, and that no text of a tenant becomes a part of it."""

from html.parser import HTMLParser

import pytest
from msgspec.structs import replace

from schemas.gate import MeasureResult
from services.gateway.jobs.domain.gate_report import CHARACTERS_MAX, report_page
from services.gateway.jobs.domain.gate_responses import gate_response
from tests.unit.services.eval.samples import holdout, item, measured, scores
from tests.unit.services.gateway.jobs.domain.test_gate_responses import BASE
from tests.unit.services.gateway.jobs.job_events import SUMMARY
from tunery.work.scores import PromptAnswers, QuestionText, Scores

MEASURE = MeasureResult(
    kind="token_f1",
    verdict="pass",
    rows=2,
    base_ppm=100_000,
    adapter_ppm=600_000,
    low_ppm=300_000,
    high_ppm=700_000,
    gain_min_ppm=50_000,
)
HOSTILE = "</td><script>fetch('//evil')</script><img src=x onerror=alert(1)>\x00\"'&amp;"
ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "h1",
    "h2",
    "h3",
    "p",
    "strong",
    "ul",
    "li",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "svg",
    "line",
    "path",
    "circle",
    "rect",
    "text",
}
LOADING = {"src", "href", "xlink:href", "action", "data", "background"}


class Page(HTMLParser):
    """The elements of a page, their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text += data


def judged(text: str = "a lamp") -> Scores:
    items = (item(1, True, False), item(2, False, True), item(3, True, True))
    rows = (measured(4, 0.9, 0.2), measured(5, 0.1, 0.8), measured(6, 0.5, 0.5))
    question = QuestionText(id="1", question=text, choices=(f"{text}!", "no"), answer_index=0)
    return replace(
        scores(items, holdout()),
        questions=(question,),
        measures=("token_f1",),
        rows=tuple(replace(row, prompt=f"{text} {row.row}", adapter=text) for row in rows),
        answers=(PromptAnswers(prompt=text, base=text, adapter=text),),
    )


def page_of(text: str) -> str:
    summary = replace(SUMMARY, comparisons=(BASE,), measures=(MEASURE,))
    return report_page(f"ft:{text}", gate_response(summary), judged(text))


def test_every_item_and_row_on_which_the_two_differ_is_shown() -> None:
    text = Page(page_of("a lamp")).text
    assert "which the two differ (2)" in text
    assert "a lamp!" in text, "the right answer of item 1"
    assert text.index("a lamp 4") < text.index("a lamp 5"), "what got worse comes first"
    assert "a lamp 6" not in text, "both sides are equal there"
    assert "0.90 → 0.20" in text


def test_the_statistics_say_what_they_can_show() -> None:
    page = Page(page_of("a lamp"))
    for words in ("Rule:", "in 4 of 5 cases", "p (Holm)", "+0.300", "+0.700"):
        assert words in page.text
    assert {"svg", "circle", "rect"} <= page.elements


@pytest.mark.parametrize("text", [HOSTILE, "<b>bold</b>", "]]>-->", "javascript:alert(1)"])
def test_hostile_text_stays_text_and_nothing_is_loaded(text: str) -> None:
    page = Page(page_of(text))
    assert page.elements <= ALLOWED
    assert not page.attributes & LOADING
    assert not any(name.startswith("on") for name in page.attributes)
    assert text.replace("\x00", "").split("\x00")[0][:10] in page.text


def test_long_texts_are_cut_and_marked() -> None:
    long = "x" * (CHARACTERS_MAX + 50)
    page = page_of(long)
    assert f"{'x' * CHARACTERS_MAX}…" in page
    assert f"<td>{long}" not in page


def test_scores_of_before_have_a_page_without_texts() -> None:
    plain = scores((item(1, True, False),), holdout())
    text = Page(report_page("ft:a", gate_response(SUMMARY), plain)).text
    assert "answer 1" in text
    assert "Your own rows" not in text

"""Amounts, times and sizes as text; values in templates are escaped."""

from services.gateway.console import words


def test_amounts_have_their_currency_and_the_digits_that_they_need() -> None:
    assert words.money(12_345_678_900, "EUR") == "€12,345.68"
    assert words.money(13_600, "EUR") == "€0.0136"
    assert words.money(-666_667, "EUR") == "−€0.6667"
    assert words.money(-5, "EUR") == "−€0.000005"
    assert words.money(0, "CHF") == "CHF 0.00"
    assert words.money(None, "EUR") == "–"


def test_times_and_sizes_read_in_their_two_largest_units() -> None:
    assert [words.duration(s) for s in (0.5, 59, 61, 3_700, 200_000, -61)] == [
        *("0.5 s", "59 s", "1 min 1 s", "1 h 1 min", "2 d 7 h", "−1 min 1 s"),
    ]
    assert [words.size(n) for n in (12, 4_096, 5_300_000_000)] == ["12 B", "4.1 kB", "5.3 GB"]


def test_values_are_escaped_in_every_template() -> None:
    template = words.templates().from_string("{{ text }} {{ at|moment }}")
    shown = template.render(text="<b>'\"", at=0)
    assert shown.startswith("&lt;b&gt;&#39;&#34; <time datetime=")


def test_an_arrow_is_drawn_and_all_else_is_text() -> None:
    assert words.prose("loss <b> 3 → 1") == f"loss &lt;b&gt; 3 {words.ARROW} 1"

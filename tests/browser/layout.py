"""Whether the sections of a page stand on its grid, which no font and no text changes."""

from typing import Final

from playwright.async_api import Page

#: sections that stand in no other one: left edge from that of the page's content, and width
BOXES: Final = """
() => {
  const main = document.querySelector("main"), style = getComputedStyle(main);
  const left = main.getBoundingClientRect().x + parseFloat(style.paddingLeft);
  const width = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  const sections = [...main.querySelectorAll("section, form.card")]
    .filter((each) => !each.parentElement.closest("section, form.card"));
  return [[0, width], ...sections.map((each) => {
    const box = each.getBoundingClientRect();
    return [box.x - left, box.width];
  })];
}
"""
COLUMNS_MAX: Final = 3
GAP: Final = 16.0
PX: Final = 1.0  # by which a browser may round


async def boxes(page: Page) -> list[tuple[float, float]]:
    """Return the left edge and the width of the content, and of each section in it, in px."""
    pairs: list[tuple[float, float]] = await page.evaluate(BOXES)
    return [(x, width) for x, width in pairs]


def off_grid(sections: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return those of `boxes` that fill no column of one, two or three and are not centred."""
    (_, whole), *others = sections
    columns = [
        (number * (width + GAP), width)
        for count in range(1, COLUMNS_MAX + 1)
        for width in ((whole - GAP * (count - 1)) / count,)
        for number in range(count)
    ]
    return [
        (x, width)
        for x, width in others
        if abs(2 * x + width - whole) > PX
        and not any(abs(x - at) <= PX and abs(width - own) <= PX for at, own in columns)
    ]

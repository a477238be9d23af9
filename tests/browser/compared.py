"""Pictures of views that are kept, and what a test compares with them.

    python -m pytest tests/e2e/test_console_views.py --update-pictures

A picture is half as large as the page and compressed, some ten kilobytes. Ids, times and hashes
are written over before it is taken, as they differ between runs. Compared are means of squares,
so that one pixel of a letter may differ and a word, a colour or an edge may not.
"""

from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.async_api import Page

from tests.browser.pictures import show_on, wait_until_drawn

FOLDER: Final = Path(__file__).parent / "views"
SCALE: Final = 2  # pixels of a page for one of its picture
QUALITY: Final = 60
SQUARE: Final = 8  # pixels of the picture
DIFFERENCE_MAX: Final = 8.0  # of a square's mean, of 255; one letter changes it by 30 to 50

#: what differs between runs is the same in every picture; the stream is closed, as it would
#: bring the rest back
FREEZE: Final = """
() => {
  document.getElementById("stream")?.remove();
  const date = "1 Dec 2026", time = "14:05:09";
  const samples = {full: `${date}, ${time}`, short: "1 Dec, 14:05", time, day: date};
  for (const each of document.querySelectorAll("time"))
    each.textContent = samples[each.dataset.form];
  for (const bars of document.querySelectorAll(".bars")) {  // as on the last of 30 days
    bars.setAttribute("viewBox", "0 0 300 100");
    bars.replaceChildren(bars.lastElementChild);
    bars.firstElementChild.setAttribute("x", 291);
  }
  for (const took of document.querySelectorAll("[aria-label=Commands] td:last-child"))
    took.textContent = "1 s";
  // plans of a job that is submitted now, among others that were submitted seconds ago
  const plans = document.querySelectorAll("[aria-label='What would start it sooner'] tbody tr");
  for (const row of plans) {
    row.cells[1].textContent = samples.short;
    row.cells[3].textContent = "Waiting for 1 slot.";
  }
  const answers = [...document.querySelectorAll("#answers > section")];  // in an order by chance
  answers.sort((one, other) => (one.innerText < other.innerText ? 1 : -1));
  for (const each of answers) each.parentElement.prepend(each);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const same = (text) => text
    .replace(/[0-9a-f]{8,}/g, (id) => "0123456789abcdef".repeat(4).slice(0, id.length))
    .replace(/…[\\w+\\/=-]{4}/g, "…abcd")
    .replace(/(journal\\S* \\d+):\\d+/, "$1:0")
    .replace(/\\b20\\d\\d-\\d\\d\\b/g, "2026-12");
  while (texts.nextNode()) texts.currentNode.data = same(texts.currentNode.data);
  for (const option of document.querySelectorAll("option")) option.text = same(option.text);
}
"""


async def screenshot_of(page: Page, screen: str) -> Image.Image:
    """Return a picture of the whole page."""
    await show_on(page, screen)
    await page.evaluate(FREEZE)
    await wait_until_drawn(page)
    whole = Image.open(
        BytesIO(await page.screenshot(full_page=True, animations="disabled"))
    ).convert("RGB")
    return whole.resize((whole.width // SCALE, whole.height // SCALE), Image.Resampling.BOX)


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.webp"


def keep(picture: Image.Image, name: str) -> None:
    path_of(name).write_bytes(_compressed(picture))


def _compressed(picture: Image.Image) -> bytes:
    file = BytesIO()
    picture.save(file, "WEBP", quality=QUALITY, method=6)
    return file.getvalue()


def _loaded(content: bytes) -> Image.Image:
    with Image.open(BytesIO(content)) as image:
        return image.convert("RGB")


def difference(picture: Image.Image, name: str) -> str | None:
    """Return how a picture differs from the one that is kept; None: it does not."""
    if not path_of(name).exists():
        return f"{name}: none is kept"
    before = _loaded(path_of(name).read_bytes())
    if picture.size != before.size:
        return f"{name}: {picture.size}, not {before.size} pixels"
    same_loss = _loaded(_compressed(picture))  # what compression changes is no difference
    squares = np.abs(_means(same_loss) - _means(before)).max(axis=2)
    if squares.max() <= DIFFERENCE_MAX:
        return None
    row, column = np.unravel_index(squares.argmax(), squares.shape)
    where = f"{SCALE * SQUARE * column}, {SCALE * SQUARE * row}"
    count = int((squares > DIFFERENCE_MAX).sum())
    return f"{name}: {count} squares differ, most at {where} px, by {squares.max():.0f} of 255"


def _means(picture: Image.Image) -> NDArray[np.float64]:
    """Mean of each square and colour, with those at the edges whole."""
    pixels = np.asarray(picture, np.float64)
    height, width, _ = pixels.shape
    pixels = np.pad(pixels, ((0, -height % SQUARE), (0, -width % SQUARE), (0, 0)), "edge")
    rows, columns = pixels.shape[0] // SQUARE, pixels.shape[1] // SQUARE
    squares = pixels.reshape(rows, SQUARE, columns, SQUARE, 3)
    means: NDArray[np.float64] = squares.mean(axis=(1, 3))
    return means

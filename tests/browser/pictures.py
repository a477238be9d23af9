"""Pictures of pages, kept by tests where `TUNERY_SCREENSHOTS` names a folder.

TUNERY_SCREENSHOTS=/tmp/shots python -m pytest tests/e2e/test_console.py
python -m tests.browser.pictures /tmp/shots     # those of the documentation, into docs/images
"""

import os
import sys
from pathlib import Path
from typing import Final

from PIL import Image
from playwright.async_api import Page

KEPT: Final = os.environ.get("TUNERY_SCREENSHOTS")
WIDTHS: Final = {"light": 1280, "dark": 1280, "phone": 390}
WIDE: Final = 1920
HEIGHT: Final = 900
IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
#: pictures of the documentation → height that they show
PUBLISHED: Final = {
    "job-resumed-light": 1_310,
    "job-resumed-dark": 1_310,
    "new-job-light": 1_360,
    "model-light": 730,
    "invoice-light": 840,
}
QUALITY: Final = 75


async def picture(page: Page, name: str) -> None:
    """Keep pictures of a view on every screen, where they are wanted."""
    if KEPT is not None:
        for screen in WIDTHS:
            await show_on(page, screen)
            await wait_until_drawn(page)
            await page.screenshot(path=Path(KEPT) / f"{name}-{screen}.png", full_page=True)
        await show_on(page, "light")


async def wait_until_drawn(page: Page) -> None:
    """Wait until curves have the size and the colours of the screen."""
    for _ in range(3):
        await page.evaluate("() => new Promise(requestAnimationFrame)")


async def show_on(page: Page, screen: str) -> None:
    """Give the page the theme and the width of a screen."""
    await page.emulate_media(color_scheme="dark" if screen == "dark" else "light")
    await page.set_viewport_size({"width": WIDTHS[screen], "height": HEIGHT})


def publish(folder: Path) -> None:
    """Compress the pictures of the documentation."""
    for name, height in PUBLISHED.items():
        with Image.open(folder / f"{name}.png") as picture:
            shown = picture.convert("RGB").crop((0, 0, picture.width, min(height, picture.height)))
        shown.save(IMAGES / f"{name}.webp", quality=QUALITY, method=6)


if __name__ == "__main__":
    publish(Path(sys.argv[1]))

"""Pictures of pages, kept by tests where `TUNERY_SCREENSHOTS` names a folder."""

import os
from pathlib import Path
from typing import Final

from playwright.async_api import Page

KEPT: Final = os.environ.get("TUNERY_SCREENSHOTS")
WIDTHS: Final = {"light": 1280, "dark": 1280, "phone": 390}
HEIGHT: Final = 900


async def picture(page: Page, name: str) -> None:
    """Keep pictures of a view on every screen, where they are wanted."""
    if KEPT is not None:
        for screen in WIDTHS:
            await show_on(page, screen)
            await drawn(page)
            await page.screenshot(path=Path(KEPT) / f"{name}-{screen}.png", full_page=True)
        await show_on(page, "light")


async def drawn(page: Page) -> None:
    """Wait until curves have the size and the colours of the screen."""
    for _ in range(3):
        await page.evaluate("() => new Promise(requestAnimationFrame)")


async def show_on(page: Page, screen: str) -> None:
    """Give the page the theme and the width of a screen."""
    await page.emulate_media(color_scheme="dark" if screen == "dark" else "light")
    await page.set_viewport_size({"width": WIDTHS[screen], "height": HEIGHT})

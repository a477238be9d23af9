"""Every view of the console in a browser, over an API in memory: in both themes, from a phone to a
wide screen.

WCAG 2.2 AA by axe-core, no error of a script, nothing wider than the screen, each section in
a column of the page's grid, and as it looks in the pictures of tests/browser/views.

`TUNERY_SCREENSHOTS=FOLDER` keeps a large picture of each view.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from PIL.Image import Image
from playwright.async_api import Browser, FilePayload, Page, Route, expect

from services.gateway.console.new_job.page import PART_BYTES
from tests.browser import axe_script, browser
from tests.browser.compared import FOLDER, difference, keep, screenshot_of
from tests.browser.layout import boxes, off_grid
from tests.browser.pictures import HEIGHT, WIDE, WIDTHS, picture, show_on, wait_until_drawn
from tests.browser.sites import (
    ADAPTER,
    LATE_MS,
    SHIFTS,
    Site,
    serving,
    signed_in,
    site,
    step_of,
    steps_of,
)
from tests.unit.services.gateway.console import consoles
from tests.unit.services.gateway.control_plane import ROW

pytestmark = pytest.mark.timeout(900)

STANDARD: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
LEFT_AT: Final = 6  # the part of an upload at which its page is left
SHIFT_MAX: Final = 0.01  # of a page while it loads; 0.1 is called good
FIRST_VIEW_BYTES_MAX: Final = 150_000  # as they are sent, with scripts and styles
PICTURES_BYTES_MAX: Final = 1_000_000
#: times that each curve is drawn when so many steps come before the next frame
DRAWS_OF: Final = """
async (steps) => {
  const draws = plots.map(() => 0);
  plots.forEach((plot, at) => {
    const set = plot.setData;
    plot.setData = (...data) => { draws[at] += 1; set(...data); };
  });
  const names = Object.keys(curve), last = curve.step.at(-1);
  for (let step = last + 1; step <= last + steps; step += 1) {
    const added = Object.fromEntries(names.map((name) => [name, [name === "step" ? step : 1]]));
    document.dispatchEvent(new CustomEvent("points", {detail: {data: JSON.stringify(added)}}));
  }
  for (let frame = 0; frame < 3; frame += 1) await new Promise(requestAnimationFrame);
  return curve.step.at(-1) === last + steps ? draws : [];
}
"""
FOCUSED: Final = """
() => document.activeElement.localName === "body" ? "BODY" : document.activeElement.textContent
"""
CONTROLS: Final = """
() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility()).length
"""
IS_MARKED: Final = """
() => {
  const {outlineStyle, outlineWidth} = getComputedStyle(document.activeElement);
  return outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
}
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="console")
async def console_of_a_tenant() -> AsyncIterator[Site]:
    async with site() as filled:
        yield filled


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as running:
        yield running


async def violations(page: Page) -> list[Any]:
    """Return what axe-core finds on the page, each with the elements that it concerns."""
    await page.add_script_tag(path=axe_script())
    report = await page.evaluate("rules => axe.run(document, {runOnly: rules})", STANDARD)
    assert len(report["passes"]) > 5, "it has looked"
    return [
        (each["id"], [element["html"][:200] for element in each["nodes"]])
        for each in report["violations"]
    ]


async def fits(page: Page, width: int) -> bool:
    """Wait until a page is no wider than its window, whose curves are drawn again at each size."""
    for _ in range(600):
        if await page.evaluate("document.documentElement.scrollWidth") <= width:
            return True
        await page.wait_for_timeout(100)
    return False


def copy_of(name: str, content: bytes) -> FilePayload:
    return {"name": name, "mimeType": "application/octet-stream", "buffer": content}


async def look(page: Page, url: str, name: str, path: str) -> dict[str, Image]:
    """Open a view, wait for what its script draws, and check it on every screen.

    Returns its pictures by name.
    """
    response = await page.goto(url + path)
    assert response is not None
    assert response.status == (404 if name == "missing" else 200), name
    if name == "job":
        await page.locator("#chart canvas").nth(3).wait_for()
    await wait_until_drawn(page)
    assert await page.evaluate(SHIFTS) < SHIFT_MAX, name
    if name == "job":
        await page.get_by_role("link", name="What would start it sooner?").click()
        await page.get_by_text("As it is", exact=True).wait_for()
        await page.get_by_text("not a finite number at 2 of these steps").wait_for()
    if name == "report":
        await page.get_by_text("Price, at most").wait_for()
        await page.get_by_role("link", name="Show the first ones").click()
        await page.get_by_text("tokenizer.json").wait_for()  # this base model has no folder
    if name == "playground":
        await page.get_by_label("Blind").check()
        await page.get_by_label("Question").fill("Who keeps the lamp?")
        await page.get_by_role("button", name="Ask").click()
        await page.get_by_role("heading", name="Answer 2").wait_for()
        await page.get_by_role("button", name="Neither is better").click()
        await page.get_by_text("Votes in this tab: equal: 1").wait_for()
        named = page.get_by_role("heading", name="tiny-llama", exact=True)
        base = page.locator("#answers > section").filter(has=named)
        await base.get_by_text("Save as evaluation item").click()
        await base.get_by_label("The answer that the question should get").fill("I do.")
        await base.get_by_role("button", name="Save", exact=True).click()
        await page.get_by_text("as row 1 of evaluation@1").wait_for()
    if name == "files":
        copies = page.get_by_label("Check downloaded files")
        await copies.set_input_files([copy_of("adapter_model.safetensors", b"spoilt")])
        await page.get_by_text("differs").wait_for()
        stranger = copy_of("other.txt", b"")
        await copies.set_input_files([*(copy_of(*each) for each in ADAPTER.items()), stranger])
        await page.get_by_text("no files of this version").wait_for()
        assert await page.get_by_text("the same").count() == len(ADAPTER)
    return await checked(page, name)


async def checked(page: Page, name: str) -> dict[str, Image]:
    """Check a page on every screen, and return its pictures by name."""
    await page.set_viewport_size({"width": WIDE, "height": HEIGHT})
    assert await fits(page, WIDE), f"{name}, wide"
    assert off_grid(await boxes(page)) == [], f"{name}, wide"
    there = {}
    for screen, width in WIDTHS.items():
        await show_on(page, screen)
        assert await fits(page, width), f"{name}, {screen}"
        assert await violations(page) == [], f"{name}, {screen}"
        there[screen] = await boxes(page)
        assert off_grid(there[screen]) == [], f"{name}, {screen}"
    assert there["light"] == there["dark"], f"{name}: a theme changes colours alone"
    await picture(page, name)
    file = name.replace(" ", "-")
    return {f"{file}-{screen}": await screenshot_of(page, screen) for screen in WIDTHS}


@dataclass
class Kept:
    """Compares pictures with those that are kept, or keeps them with `--update-pictures`."""

    folder: Path  # for pictures that differ
    is_updating: bool
    differences: list[str] = field(default_factory=list)

    def compare(self, pictures: dict[str, Image]) -> None:
        for name, image in pictures.items():
            if self.is_updating:
                keep(image, name)
            elif changed := difference(image, name):
                image.save(self.folder / f"{name}.png")
                self.differences.append(changed)

    def finish(self) -> None:
        advice = f"see {self.folder}; --update-pictures keeps what is wanted"
        assert self.differences == [], advice
        assert sum(file.stat().st_size for file in FOLDER.iterdir()) <= PICTURES_BYTES_MAX


@pytest.fixture
def kept(tmp_path: Path, pytestconfig: pytest.Config) -> Kept:
    return Kept(tmp_path, pytestconfig.getoption("update_pictures"))


async def test_every_view_is_accessible_fits_and_looks_as_it_did_on_every_screen(
    chromium: Browser, kept: Kept
) -> None:
    wrong: list[str] = []
    async with site() as console:  # its own, as the pages show what other tests have done
        for key in (console.tenant_key, console.operator_key):
            page = await signed_in(chromium, console.url, key, wrong)
            for name, path in console.views.items():
                if path.startswith("/operators") == (key == console.operator_key):
                    kept.compare(await look(page, console.url, name, path))
            await page.context.close()  # one in the background would draw nothing
    assert wrong == []
    kept.finish()


async def test_sign_in_errors_and_empty_pages_look_as_they_did_on_every_screen(
    console: Site, chromium: Browser, kept: Kept
) -> None:
    context = await chromium.new_context(bypass_csp=True, locale="en-GB")
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    await page.goto(f"{console.url}/sign-in")
    kept.compare(await checked(page, "sign-in"))
    await page.get_by_label("API key").fill("tun-wrong")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_role("alert").filter(has_text="not valid").wait_for()
    kept.compare(await checked(page, "sign-in refused"))
    await context.close()

    beginner = await console.api.tenant()
    async with serving(console.console) as url:
        page = await signed_in(chromium, url, consoles.key_of(beginner), [])
        for name, path in (("empty", ""), ("empty usage", "/money"), ("refused", "/operators")):
            await page.goto(url + path)
            kept.compare(await checked(page, name))
        await page.goto(f"{url}/webhooks")
        await page.get_by_label("URL").fill("https://example.com/hook")
    await page.get_by_role("button", name="Create").click()
    await page.get_by_text("The connection is lost").wait_for()
    kept.compare(await checked(page, "offline"))
    await page.context.close()
    kept.finish()


async def test_an_upload_of_100_mb_continues_after_a_cut_and_after_a_reload(
    console: Site, chromium: Browser, tmp_path: Path
) -> None:
    wrong: list[str] = []
    file = tmp_path / "big.jsonl"
    file.write_bytes(ROW * (100_000_000 // len(ROW)))
    parts, lost, is_cut = 0, 0, True
    held: list[Route] = []

    async def pass_on(route: Route) -> None:
        nonlocal parts, lost
        parts += 1
        if is_cut and parts > 2:
            lost += 1
            await route.abort("connectionreset")
        elif parts - lost == LEFT_AT:  # it is not answered before the page is left
            held.append(route)
        else:
            await route.continue_()

    page = await signed_in(chromium, console.url, console.tenant_key, wrong)
    await page.route("**/parts", pass_on)
    await page.goto(f"{console.url}/new")
    await page.set_input_files("#file", file)
    await page.get_by_role("button", name="Upload and check").click()
    await page.get_by_text("The connection is lost").wait_for()
    is_cut = False
    await page.get_by_text("The connection is lost").wait_for(state="hidden")
    async with asyncio.timeout(LATE_MS / 1_000):
        while not held:  # noqa: ASYNC110  # the browser sends them
            await asyncio.sleep(0.01)
    await page.goto(f"{console.url}/new")
    await held[0].abort()
    await page.set_input_files("#file", file)
    await page.get_by_role("button", name="Upload and check").click()
    await page.wait_for_url("**/new?file=*")
    needed = -(-file.stat().st_size // PART_BYTES)
    assert parts - lost == needed + 1, "but for what got no answer, nothing is sent twice"
    listed = (await console.tenant.get("/v1/files?purpose=fine-tune&limit=1")).json()["data"][0]
    assert listed["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    await page.context.close()
    assert wrong == []


async def test_an_upload_whose_key_ends_continues_with_another_key(
    console: Site, chromium: Browser, tmp_path: Path
) -> None:
    api, tenant = console.api, console.tenant.headers["x-tenant"]
    path = f"/v1/tenants/{tenant}/keys"
    body = {"name": "uploader", "scopes": ["read", "files.write"]}
    key = (await api.api.post(path, json=body)).json()
    file = tmp_path / "rows.jsonl"
    file.write_bytes(ROW * (3 * PART_BYTES // len(ROW) + 1))  # four parts
    parts = 0

    async def pass_on(route: Route) -> None:
        nonlocal parts
        parts += 1
        if parts == 3:
            assert (await api.api.delete(f"{path}/{key['id']}")).status_code == 200
        await route.continue_()

    page = await signed_in(chromium, console.url, key["key"], [])
    await page.route("**/parts", pass_on)
    await page.goto(f"{console.url}/new")
    for round_key in ("", console.tenant_key):
        if round_key:
            await page.get_by_role("heading", name="Sign in").wait_for()
            await page.get_by_label("API key").fill(round_key)
            await page.get_by_role("button", name="Sign in").click()
            await page.wait_for_url("**/console/new")
        await page.set_input_files("#file", file)
        await page.get_by_role("button", name="Upload and check").click()
    await page.wait_for_url("**/new?file=*")
    assert parts == 4 + 1, "what had arrived is not sent again"
    await page.context.close()


async def test_the_form_offers_the_methods_of_a_file_once_that_is_checked(
    console: Site, chromium: Browser
) -> None:
    file_id = (await console.api.upload(console.tenant, ROW * 21))["id"]
    page = await signed_in(chromium, console.url, console.tenant_key, [])
    await page.goto(f"{console.url}/new?file={file_id}")
    await expect(page.get_by_label("Method")).to_have_value("supervised")
    await console.api.validated(console.tenant, file_id, dialect="dpo")
    await expect(page.get_by_label("Method")).to_have_value("dpo", timeout=LATE_MS)
    await expect(page.locator("#estimate")).to_contain_text('"type": "dpo"', timeout=LATE_MS)
    await page.context.close()


async def test_a_form_that_is_sent_while_the_api_is_away_is_sent_once_it_is_back(
    console: Site, chromium: Browser
) -> None:
    lost = "The connection is lost"
    async with serving(console.console) as url:
        port = int(url.split(":")[2].partition("/")[0])
        page = await signed_in(chromium, url, console.tenant_key, [])
        await page.goto(f"{url}/webhooks")
        await page.get_by_label("Name").fill("patient")
        await page.get_by_label("URL").fill("https://example.com/patient")
        asking = await page.context.new_page()
        asking.set_default_timeout(LATE_MS)
        await asking.goto(f"{url}/playground")
        await asking.get_by_label("Question").fill("Who keeps the lamp?")
    await page.get_by_role("button", name="Create").click()
    await page.get_by_text(lost).wait_for()
    await page.get_by_role("button", name="Create").click()  # impatience sends nothing twice
    await asking.get_by_role("button", name="Ask").click()
    await asking.get_by_text(lost).wait_for()
    async with serving(console.console, port):
        await page.get_by_role("heading", name="The signing secret").wait_for()
        await asking.get_by_text("Hello", exact=True).first.wait_for()
        await asking.get_by_text(lost).wait_for(state="hidden")
        hooks = (await console.tenant.get("/v1/webhook_endpoints")).json()["data"]
        assert [hook["name"] for hook in hooks].count("patient") == 1
        await page.context.close()


async def test_a_page_of_a_job_misses_nothing_while_the_api_is_away(
    console: Site, chromium: Browser
) -> None:
    """At last its key is revoked, and the page asks for another one."""
    api, tenant = console.api, console.tenant.headers["x-tenant"]
    job_id = console.views["job"].rpartition("/")[2]
    path, body = f"/v1/tenants/{tenant}/keys", {"name": "watcher", "scopes": ["read"]}
    key = (await api.api.post(path, json=body)).json()
    lost = "The connection is lost"
    async with serving(console.console) as url:
        port = int(url.split(":")[2].partition("/")[0])
        page = await signed_in(chromium, url, key["key"], [])
        await page.goto(f"{url}/jobs/{job_id}")
        assert await steps_of(page, 40) == list(range(1, 41))
    await page.get_by_text(lost).wait_for()
    for number in range(41, 51):
        await api.telemetry(tenant, job_id, step_of(tenant, job_id, number))
    async with serving(console.console, port):
        assert await steps_of(page, 50) == list(range(1, 51)), "no gap and no step twice"
        await page.get_by_text(lost).wait_for(state="hidden")
        assert (await api.api.delete(f"{path}/{key['id']}")).status_code == 200
        await page.get_by_role("heading", name="Sign in").wait_for()
        await page.context.close()


async def test_a_curve_is_drawn_once_a_frame_however_many_steps_come(
    console: Site, chromium: Browser
) -> None:
    page = await signed_in(chromium, console.url, console.tenant_key, [])
    await page.goto(console.url + console.views["job"])
    await page.locator("#chart canvas").nth(3).wait_for()
    await page.evaluate("document.getElementById('stream').remove()")
    await wait_until_drawn(page)
    assert await page.evaluate(DRAWS_OF, 1_000) == [1] * 4
    await page.context.close()


async def test_a_first_view_is_small(console: Site) -> None:
    async with consoles.signed_in(console.console, console.tenant_key) as client:
        page = await client.get("/console")
        assets = re.findall(r'(?:src|href)="(/console/assets/[^"]*)"', page.text)
        answers = [page, *[await client.get(address) for address in assets]]
    assert len(answers) > 5
    assert sum(each.num_bytes_downloaded for each in answers) <= FIRST_VIEW_BYTES_MAX


async def test_a_keyboard_is_enough(console: Site, chromium: Browser) -> None:
    context = await chromium.new_context(timezone_id="Asia/Kolkata", locale="en-GB")
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    await page.goto(f"{console.url}/sign-in")
    await page.get_by_label("API key").focus()
    await page.keyboard.type(console.tenant_key)
    await page.keyboard.press("Enter")
    await page.wait_for_url(console.url)

    # the first key press offers to skip the menu; each control can be reached, and shows that it is
    await page.keyboard.press("Tab")
    assert await page.evaluate(FOCUSED) == "Skip to content"
    there = await page.evaluate(CONTROLS)
    seen = 1
    while (await page.evaluate(FOCUSED)) != "BODY" and seen <= there:
        assert await page.evaluate(IS_MARKED), await page.evaluate(FOCUSED)
        await page.keyboard.press("Tab")
        seen += 1
    assert seen > there, "each control is reached"

    # a job is opened and left, a filter set
    job = page.get_by_role("link", name="rank-8")
    await job.focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/jobs/ftjob-*")
    created = page.locator("#job-head time")
    assert "India" in str(await created.get_attribute("title")), "times are the reader's"
    await page.go_back()
    await page.get_by_label("Suffix").focus()
    await page.keyboard.type("rank-16")
    await job.wait_for(state="detached")

    # the next user of the browser does not see it
    await page.get_by_role("button", name="Sign out").focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("heading", name="Sign in").wait_for()
    await page.go_back()
    await page.get_by_role("heading", name="Sign in").wait_for()
    assert await page.get_by_text("rank-16").count() == 0
    await context.close()

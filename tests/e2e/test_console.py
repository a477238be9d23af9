"""The console in a real browser on a live stack: from a file with a fault to an invoice, by clicks.

Everything is real: servers, services, the agent that is killed, a tiny model that is trained,
judged, asked and promoted.

`TUNERY_SCREENSHOTS=FOLDER` keeps pictures, in both themes and as wide as a phone.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser import browser
from tests.browser.pictures import picture
from tests.e2e.stories import AGENT_A, RunningStack, rows, running_stack, tunery

pytestmark = [pytest.mark.train, pytest.mark.timeout(1_200)]

LATE_MS: Final = 300_000  # a shared machine may be slow
BROKEN: Final = b'{"messages": [{"role": "user", "content": "<img src=x onerror=alert(1)>"}]}\n'
SUFFIX: Final = "<b>'\"&"
VERDICTS: Final = re.compile("pass|inconclusive")
TUNED: Final = re.compile("^ft:.*:lighthouse:")
EPOCHS: Final = 16  # 80 steps: long enough to be killed after the first checkpoint, at step 20


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    expect.set_options(timeout=LATE_MS)
    async with browser() as running:
        yield running


async def reload_until(page: Page, there: Locator) -> None:
    """Reload a page until something is on it: bills follow use within seconds."""
    async with asyncio.timeout(LATE_MS / 1_000):
        while not await there.count():
            await page.wait_for_timeout(1_000)
            await page.reload()


async def start_training(page: Page, base: str, suffix: str) -> None:
    """Fill the form of a checked file in, read the estimate, and submit."""
    await page.get_by_label("Base model").select_option(base)
    await page.get_by_label("Epochs").fill(str(EPOCHS))
    await page.get_by_label("Batch size").fill("1")
    await page.get_by_label("Suffix").fill(suffix)
    estimate = page.locator("#estimate")
    await expect(estimate).to_contain_text(f'"suffix": "{suffix}"')
    await expect(estimate).to_contain_text("Price, expected")
    await picture(page, "new-job")
    await page.get_by_role("button", name="Start training").click()
    await page.wait_for_url("**/console/jobs/ftjob-*")


async def sign_in(page: Page, chromium: Browser, data_dir: Path) -> None:
    """One code signs one browser in, once."""
    _, said = await tunery(data_dir, "console", "--json")
    address = json.loads(said)["url"]
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    stranger = await (await chromium.new_context()).new_page()
    await stranger.goto(address)
    await expect(stranger.get_by_role("heading", name="Sign in")).to_be_visible()
    await stranger.close()


async def mend_a_file(page: Page, base: str) -> str:
    """A file with a fault is not accepted, and says where it is; the mended one is, and costs what
    the settings say. A job of it is cancelled.

    Returns the address of the file's report.
    """
    await page.get_by_role("link", name="New job").first.click()
    file = {"name": SUFFIX + ".jsonl", "mimeType": "application/jsonl", "buffer": BROKEN}
    await page.set_input_files("#file", file)  # type: ignore[arg-type]  # it is a FilePayload
    await page.get_by_role("button", name="Upload and check").click()
    await expect(page.locator("#report")).to_contain_text("not accepted")
    await expect(page.locator("#report")).to_contain_text("row 1")

    await page.get_by_role("link", name="Upload another file").click()
    good = {"name": "keeper.jsonl", "mimeType": "application/jsonl", "buffer": rows()}
    await page.set_input_files("#file", good)  # type: ignore[arg-type]  # it is a FilePayload
    await page.get_by_role("button", name="Upload and check").click()
    await expect(page.locator("#report")).to_contain_text("accepted")
    checked = page.url
    await start_training(page, base, "keeper")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#job-head .state")).to_have_text("cancelled")
    return checked


async def train_through_a_kill(page: Page, home: RunningStack) -> None:
    """A curve grows, the node is killed, the job goes on, and the page is open all the time."""
    await expect(page.locator("#chart canvas")).to_have_count(4)
    await expect(page.locator("#job-checkpoints td").first).to_be_visible(timeout=LATE_MS)
    assert home.stack.kill(AGENT_A.name, tree=True)
    attempts = page.locator("#job-attempts")
    await expect(attempts).to_contain_text("resumed from step")
    await expect(attempts).to_contain_text("lost its machine")
    await picture(page, "job-resumed")


async def ask_the_model(page: Page, base_model: str) -> None:
    """The gate judges it; its model answers beside its base."""
    await expect(page.locator("#job-head .state")).to_have_text("succeeded")
    said = await page.locator("#job-progress").inner_text()
    steps = await page.evaluate("curve.step")
    assert f"step {len(steps)} of {len(steps)}" in said
    assert steps == list(range(1, len(steps) + 1)), "no gap and no step twice"
    await expect(page.locator("#job-gate .state").first).to_have_text(VERDICTS)
    await expect(page.locator("#job-answers")).to_contain_text("After")
    await picture(page, "job-ended")
    await page.get_by_role("link", name="Ask this model").click()
    await expect(page.get_by_role("combobox", name="Model", exact=True)).to_have_value(TUNED)
    await expect(page.get_by_role("combobox", name="Beside it")).to_have_value(base_model)
    await page.get_by_label("Question").fill("What is 3 plus 6?")
    await page.get_by_role("button", name="Ask").click()
    answers = page.locator("#answers")
    await expect(answers.get_by_role("heading")).to_have_count(2)
    await expect(answers.locator(".state.live")).to_have_count(0)
    await picture(page, "playground")
    assert await answers.locator(".notice").all_text_contents() == []
    tuned, base = await answers.locator(".answer").all_text_contents()
    assert tuned != base, "it has learnt something"


async def promote_and_bill(page: Page, job_page: str) -> None:
    """It is promoted, and billed: from the month to the event in the log."""
    await page.goto(job_page)
    await page.get_by_role("link", name="Lineage and stages of its model").click()
    await page.get_by_role("button", name="Promote to staging").click()
    await expect(page.get_by_role("button", name="Roll back staging")).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("staging")
    await picture(page, "model")

    await page.get_by_role("link", name="Usage", exact=True).click()
    invoice = page.get_by_role("region", name="Invoices").get_by_role("link")
    await reload_until(page, invoice)
    await invoice.first.click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("draft")
    await picture(page, "invoice")
    await page.get_by_role("link", name=job_page.rpartition("/")[2]).click()
    await expect(page.get_by_role("heading", name="Statement", exact=True)).to_be_visible()
    lines = page.get_by_role("region", name="Lines")
    await reload_until(page, lines.get_by_text("3 eval"))
    for attempt in ("1 train", "2 train", "tunery.pool.journal.v1"):
        await expect(lines).to_contain_text(attempt)
    await picture(page, "statement")
    await page.get_by_role("link", name="Jobs", exact=True).click()
    await expect(page.locator("#jobs")).to_contain_text("lighthouse")
    await picture(page, "jobs")


async def test_a_person_takes_a_file_to_a_promoted_model_and_its_bill_by_clicks(
    home: RunningStack, chromium: Browser
) -> None:
    context = await chromium.new_context(locale="en-GB", timezone_id="Europe/Berlin")
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    await sign_in(page, chromium, home.stack.folders.root)
    await page.goto(await mend_a_file(page, home.base))
    await start_training(page, home.base, "lighthouse")
    job_page = page.url
    await train_through_a_kill(page, home)
    await ask_the_model(page, home.base)
    await promote_and_bill(page, job_page)
    assert wrong == [], "nothing was wrong on any page, and the policy allowed what they needed"

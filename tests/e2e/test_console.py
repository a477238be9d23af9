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

from bench.console import loaded
from tests.browser import browser
from tests.browser.pictures import picture
from tests.e2e.stories import AGENT_A, RunningStack, rows, running_stack, tunery

pytestmark = [pytest.mark.train, pytest.mark.timeout(1_200)]

LATE_MS: Final = 300_000  # a shared machine may be slow
BROKEN: Final = b'{"messages": [{"role": "user", "content": "<img src=x onerror=alert(1)>"}]}\n'
SUFFIX: Final = "<b>'\"&"
VERDICTS: Final = re.compile("pass|inconclusive")
TUNED: Final = re.compile("^ft:.*:lighthouse:")
FIRST_VIEW_BYTES_MAX: Final = 150_000  # as they are sent; python -m bench.console has its time
EPOCHS: Final = 16  # 80 steps: long enough to be killed after the first checkpoint


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


async def start_training(page: Page, base: str, suffix: str, epochs: int = EPOCHS) -> None:
    """Fill the form of a checked file in, read the estimate, and submit."""
    await page.get_by_label("Base model").select_option(base)
    await page.get_by_label("Epochs").fill(str(epochs))
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
    await expect(page.locator("#job-progress")).to_contain_text(re.compile(r"step [4-8]\d of"))
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

    # the same question, blind: names are shown after the vote; the better answer becomes an item
    await page.get_by_label("Blind").check()
    await page.get_by_role("button", name="Ask").click()
    await expect(answers.get_by_role("heading", name="Answer 2")).to_be_visible()
    await answers.get_by_role("button", name="This one is better").first.click()
    await expect(answers.get_by_role("heading", name=base_model, exact=True)).to_be_visible()
    await expect(answers.locator("#votes")).to_contain_text(": 1")
    await answers.get_by_text("Save as evaluation item").first.click()
    await answers.get_by_label("The answer that the question should get").first.fill("9")
    await answers.get_by_role("button", name="Save", exact=True).first.click()
    await expect(answers).to_contain_text("as row 1 of evaluation@1")


async def approver_of(page: Page, chromium: Browser) -> Page:
    """Let promotions to production need an approval; a browser with a key that may give it."""
    await page.get_by_role("link", name="Keys", exact=True).click()
    await page.get_by_role("combobox", name="Stage", exact=True).select_option("production")
    await page.get_by_role("textbox", name="Approvals", exact=True).fill("1")
    await page.get_by_role("button", name="Set the rule").click()
    rules = page.get_by_role("region", name="Approvals", exact=True)
    await expect(rules).to_contain_text("every key but the author's")
    await page.get_by_role("textbox", name="Name", exact=True).fill("approver")
    await page.get_by_role("combobox", name="May", exact=True).select_option("Promote models")
    await page.get_by_role("button", name="Make a key").click()
    key = await page.locator("#new .secret").inner_text()
    approver = await (await chromium.new_context()).new_page()
    approver.set_default_timeout(LATE_MS)
    await approver.goto(page.url)
    await approver.get_by_label("API key").fill(key)
    await approver.get_by_role("button", name="Sign in").click()
    await expect(approver.get_by_role("region", name="Rights")).to_contain_text("approver")
    return approver


async def promote(page: Page, approver: Page, job_page: str) -> str:
    """The model of a job gets to production with an approval, and not without it.

    Returns its name.
    """
    await page.goto(job_page)
    await expect(page.locator("#job-head .state")).to_have_text("succeeded")
    await page.get_by_role("link", name="Lineage and stages of its model").click()
    model_page, title = page.url, page.get_by_role("heading", level=1)
    await page.get_by_role("button", name="Promote to staging").click()
    await expect(title).to_contain_text("staging")
    await page.get_by_role("button", name="Promote to production").click()
    await expect(page.get_by_text("needs approvals for production")).to_be_visible()
    await page.get_by_role("link", name="Back to the page").click()
    await expect(title).to_contain_text("staging")
    await approver.goto(model_page)
    await approver.get_by_role("button", name="Approve for production").click()
    await expect(approver.get_by_role("region", name="Changes")).to_contain_text("approval")
    await page.goto(model_page)
    await page.get_by_role("button", name="Promote to production").click()
    await expect(title).to_contain_text("production")
    return await title.locator("bdi").inner_text()


async def replace_and_roll_back(
    page: Page, approver: Page, first_job: str, second_job: str, folder: Path
) -> None:
    """A second version takes production over, and gives it back to the first one."""
    first = await promote(page, approver, first_job)
    await expect(page.get_by_text("none to roll back to")).to_be_visible()
    await expect(page.get_by_role("button", name="Roll back")).to_have_count(0)
    await download_and_verify(page, folder)
    second = await promote(page, approver, second_job)
    assert second != first
    await picture(page, "model")
    stages = page.locator("section").filter(has=page.get_by_role("heading", name="Stages"))
    await expect(stages.get_by_role("link", name=first)).to_be_visible()
    await page.get_by_role("button", name="Roll back production").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("dev")
    await stages.get_by_role("link", name=first).click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("production")
    await expect(page.get_by_role("region", name="Changes")).to_contain_text("rollback")


async def download_and_verify(page: Page, folder: Path) -> None:
    """A file of the model is downloaded, and is what the page says."""
    await page.get_by_role("link", name="Download").click()
    files = page.get_by_role("region", name="Files")
    async with page.expect_download() as downloading:
        await files.get_by_role("link", name="adapter_model.safetensors").click()
    copy = folder / "adapter_model.safetensors"
    await (await downloading.value).save_as(copy)
    await page.get_by_label("Check downloaded files").set_input_files(copy)
    await expect(files.get_by_text("the same")).to_be_visible()


async def read_the_bill(page: Page, job_page: str) -> None:
    """The job is billed: from the month to the event in the log."""
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
    await page.get_by_label("Mark all that are shown").check()
    await page.get_by_role("button", name="Compare marked jobs").click()
    await expect(page.get_by_role("heading", name="Compare 3 jobs")).to_be_visible()
    await expect(page.locator("#compared canvas")).to_be_visible()
    await expect(page.get_by_role("region", name="Results")).to_contain_text("cancelled")


async def test_a_person_takes_a_file_to_a_promoted_model_and_its_bill_by_clicks(
    home: RunningStack, chromium: Browser, tmp_path: Path
) -> None:
    context = await chromium.new_context(locale="en-GB", timezone_id="Europe/Berlin")
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)
    url = f"{home.stack.api_url}/console"
    first = await loaded(chromium, url, home.stack.admin_key, is_first=True)
    assert first["bytes"] <= FIRST_VIEW_BYTES_MAX
    await sign_in(page, chromium, home.stack.folders.root)
    checked = await mend_a_file(page, home.base)
    await page.goto(checked)
    await start_training(page, home.base, "lighthouse")
    job_page = page.url
    await train_through_a_kill(page, home)
    other = await context.new_page()
    other.set_default_timeout(LATE_MS)
    await other.goto(checked)
    await start_training(other, home.base, "lighthouse", epochs=1)
    await ask_the_model(page, home.base)
    assert wrong == [], "no page has had an error so far"
    approver = await approver_of(page, chromium)
    await replace_and_roll_back(page, approver, job_page, other.url, tmp_path)
    wrong.clear()  # a browser reports refusals of promotions
    await read_the_bill(page, job_page)
    assert wrong == [], "nothing was wrong on any page, and the policy allowed what they needed"

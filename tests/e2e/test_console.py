"""The console in a real browser on a live stack: from a file to a job that loses its agent.

Servers, services and the agent are real; what trains is a stand-in.

`TUNERY_SCREENSHOTS=FOLDER` keeps a picture of each view, in both themes and as wide as a phone.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.browser import browser
from tests.browser.pictures import picture
from tests.e2e import stand_in_agent
from tests.e2e.stand_in_process import STORIES
from tests.e2e.stories import RunningStack, rows, running_stack, tunery
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

LATE_MS: Final = 120_000  # a shared machine may be slow
AGENT: Final = ServiceSpec(
    "agent-stand-in",
    module=stand_in_agent.__name__,
    env={"TUNERY_NODE_ID": "only"},
    stop_ms_max=60_000,
)
BROKEN: Final = b'{"messages": [{"role": "user", "content": "<img src=x onerror=alert(1)>"}]}\n'
SUFFIX: Final = "<b>'\"&"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def home() -> AsyncIterator[RunningStack]:
    async with running_stack((AGENT,)) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with browser() as running:
        yield running


async def steps_of(page: Page) -> list[int]:
    """Steps of the page's curve, once there are some; `wait_for_function` needs an `eval`."""
    async with asyncio.timeout(LATE_MS / 1_000):
        while True:
            steps: list[int] = await page.evaluate("curve.step")
            if len(steps) > 20:
                return steps
            await page.wait_for_timeout(100)


async def test_a_person_uploads_estimates_submits_and_watches_a_job_survive_its_agent(
    home: RunningStack, chromium: Browser
) -> None:
    context = await chromium.new_context(locale="en-GB", timezone_id="Europe/Berlin")
    page = await context.new_page()
    page.set_default_timeout(LATE_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if line.type == "error" else None)

    # one code signs one browser in, once
    _, said = await tunery(home.stack.folders.root, "console", "--json")
    address = json.loads(said)["url"]
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    stranger = await (await chromium.new_context()).new_page()
    await stranger.goto(address)
    await expect(stranger.get_by_role("heading", name="Sign in")).to_be_visible()
    await picture(stranger, "sign-in")
    await stranger.close()

    # a file with a fault is not accepted, and says where it is
    await page.get_by_role("link", name="New job").first.click()
    file = {"name": SUFFIX + ".jsonl", "mimeType": "application/jsonl", "buffer": BROKEN}
    await page.set_input_files("#file", file)  # type: ignore[arg-type]  # it is a FilePayload
    await page.get_by_role("button", name="Upload and check").click()
    await expect(page.locator("#report")).to_contain_text("not accepted", timeout=LATE_MS)
    await expect(page.locator("#report")).to_contain_text("row 1")
    await picture(page, "report-bad")

    # the next one is, and costs what the settings say
    await page.get_by_role("link", name="Upload another file").click()
    good = {"name": "keeper.jsonl", "mimeType": "application/jsonl", "buffer": rows()}
    await page.set_input_files("#file", good)  # type: ignore[arg-type]  # it is a FilePayload
    await page.get_by_role("button", name="Upload and check").click()
    await expect(page.locator("#report")).to_contain_text("accepted", timeout=LATE_MS)
    await page.get_by_label("Base model").select_option(home.base)
    await page.get_by_label("Epochs").fill("12")
    await page.get_by_label("Batch size").fill("1")
    await page.get_by_label("Suffix").fill("keeper")
    await expect(page.locator("#estimate")).to_contain_text('"n_epochs": 12', timeout=LATE_MS)
    await expect(page.locator("#estimate")).to_contain_text("Price, expected", timeout=LATE_MS)
    await picture(page, "new-job")
    await page.get_by_role("button", name="Start training").click()
    await page.wait_for_url("**/console/jobs/ftjob-*")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator("#job-head .state")).to_have_text("cancelled", timeout=LATE_MS)

    # a curve grows, the agent is killed, the job goes on, and the page was open all the time
    job_id = await home.submit(seed=STORIES.index("endless"), suffix="lighthouse")
    await page.goto(f"{home.stack.api_url}/console/jobs/{job_id}")
    await expect(page.locator("#chart canvas")).to_have_count(3, timeout=LATE_MS)
    await expect(page.locator("#job-checkpoints td").first).to_be_visible(timeout=LATE_MS)
    await picture(page, "job-runs")
    home.stack.kill(AGENT.name)
    resumed = page.locator("#job-attempts").get_by_text("resumed from step")
    await expect(resumed).to_be_visible(timeout=LATE_MS)
    await expect(page.locator("#job-attempts")).to_contain_text("lost its machine")
    steps = await steps_of(page)
    assert steps == list(range(1, len(steps) + 1)), "no gap and no step twice"
    await picture(page, "job-resumed")
    await page.get_by_role("link", name="Jobs", exact=True).first.click()
    await expect(page.locator("#jobs")).to_contain_text("lighthouse")
    await picture(page, "jobs")

    # nothing was wrong on any page, and the policy allowed all that they needed
    assert wrong == []

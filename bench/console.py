"""Measures the console in a browser: the first view, a long curve, a long list, and what moves.

    python -m bench.console [--json] [--quick]

`stack_*` is the first view of a whole local stack. All other pages come from the console over an
API in memory, in this process, beside the browser: on a busy machine compare ratios rather than
milliseconds. `*_ms` are medians from the request to the end of
loading, with an empty cache. `frames_per_s` counts frames while the curve of STEPS steps gets a
point with each frame, `frames_idle_per_s` those of the same page when nothing comes: a browser
without a screen draws at most 60. `shift` is the largest sum
of layout shifts of a page while it loads.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from playwright.async_api import Browser, Page

from bench.measures import data_folder, print_figures
from tests.browser import browser
from tests.browser.pictures import wait_until_drawn
from tests.browser.sites import SHIFTS, Site, signed_in, site, step_of, steps_of
from tests.unit.services.gateway.jobs.test_routes import submit
from tunery.local.initial_setup import run_setup_steps
from tunery.local.stack import AGENT, SERVICES, stack

STEPS, QUICK_STEPS = 10_000, 500
JOBS, QUICK_JOBS = 1_000, 60
ROUNDS: Final = 5
DRAWING_MS: Final = 3_000
LOADED: Final = """
() => {
  const [page] = performance.getEntriesByType("navigation");
  const all = [page, ...performance.getEntriesByType("resource")];
  return {ms: page.loadEventEnd, bytes: all.reduce((sum, each) => sum + each.transferSize, 0)};
}
"""
#: counts frames, and adds a point with each
DRAW: Final = """
async ([ms, adds]) => {
  const last = curve.step.at(-1), until = performance.now() + ms;
  let frames = 0;
  while (performance.now() < until) {
    frames += 1;
    const newest = (name) => [name, [curve[name].at(-1)]];
    const added = Object.fromEntries(Object.keys(curve).map(newest));
    added.step = [last + frames];
    const data = JSON.stringify(added);
    if (adds) document.dispatchEvent(new CustomEvent("points", {detail: {data}}));
    await new Promise(requestAnimationFrame);
  }
  return frames / (ms / 1000);
}
"""


async def measure(quick: bool) -> dict[str, float]:
    """Return figures by key."""
    steps, jobs = (QUICK_STEPS, QUICK_JOBS) if quick else (STEPS, JOBS)
    async with site() as filled, browser() as chromium:
        job_id = await _fill(filled, steps, jobs)
        url, key = filled.url, filled.tenant_key
        first = [await loaded(chromium, url, key, is_first=True) for _ in range(ROUNDS)]
        listed = [await loaded(chromium, f"{url}?search=rank", key) for _ in range(ROUNDS)]
        page = await signed_in(chromium, filled.url, filled.tenant_key, [])
        await page.goto(f"{filled.url}/jobs/{job_id}")
        points = len(await steps_of(page, min(steps, 1_000)))
        idle = await page.evaluate(DRAW, [DRAWING_MS, False])
        frames = await page.evaluate(DRAW, [DRAWING_MS, True])
        await page.context.close()
        shifts = [await _shift(chromium, filled, path) for path in filled.views.values()]
    return {
        **await _of_a_stack(),
        **summary("first_view", first),
        "jobs": jobs,
        **summary("list", listed),
        "steps": steps,
        "points": points,
        "frames_per_s": round(frames, 1),
        "frames_idle_per_s": round(idle, 1),
        "shift": round(max(shifts), 4),
    }


def summary(name: str, rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median time and the most bytes of loading a page several times."""
    return {
        f"{name}_ms": round(median(each["ms"] for each in rounds), 1),
        f"{name}_bytes": max(each["bytes"] for each in rounds),
    }


async def _fill(filled: Site, steps: int, jobs: int) -> str:
    """Give the tenant many jobs, and one of them many steps; return its id."""
    files = (await filled.tenant.get("/v1/files?purpose=fine-tune&limit=1")).json()
    file_id = files["data"][0]["id"]
    tenant = filled.tenant.headers["x-tenant"]
    limits = {"soft_gpu_ms": 1 << 50, "hard_gpu_ms": 1 << 50, "concurrency": jobs + 100}
    wanted = {"plan": "premium", "limits": limits}
    plan = await filled.api.api.post(f"/v1/tenants/{tenant}/plan", json=wanted)
    assert plan.is_success, plan.text
    ids = []
    for number in range(jobs):
        settings = {"suffix": f"rank-{number}"}
        while (body := await submit(filled.tenant, file_id, **settings)).status_code == 429:  # noqa: ASYNC110  # a limit of its plan
            await asyncio.sleep(1)
        assert body.is_success, body.text
        ids.append(body.json()["id"])
    for number in range(1, steps + 1):
        await filled.api.telemetry(tenant, ids[-1], step_of(tenant, ids[-1], number))
    path = f"/v1/fine_tuning/jobs/{ids[-1]}/metrics?limit=1"
    await filled.api.until(
        filled.tenant, path, lambda page: page["data"] and page["data"][0]["step"] == steps
    )
    return str(ids[-1])


async def _of_a_stack() -> dict[str, float]:
    """Return figures of the first view of a whole stack on this machine."""
    with data_folder() as folder:
        services = [name for name in SERVICES if name != AGENT]
        async with stack(folder, services) as running, browser() as chromium:
            await run_setup_steps(running, lambda line: print(line, file=sys.stderr))
            url = f"{running.api_url}/console"
            first = [
                await loaded(chromium, url, running.admin_key, is_first=True) for _ in range(ROUNDS)
            ]
    return summary("stack_first_view", first)


async def loaded(
    chromium: Browser, address: str, key: str, *, is_first: bool = False
) -> dict[str, float]:
    """Return time and bytes of loading a page, with an empty cache if it is the first."""
    page = await signed_in(chromium, address.partition("?")[0], key, [])
    if is_first:
        session = await page.context.new_cdp_session(page)
        await session.send("Network.clearBrowserCache")
    await page.goto(address)
    figures: dict[str, float] = await page.evaluate(LOADED)
    await page.context.close()
    return figures


async def _shift(chromium: Browser, filled: Site, path: str) -> float:
    key = filled.operator_key if path.startswith("/operators") else filled.tenant_key
    page: Page = await signed_in(chromium, filled.url, key, [])
    await page.goto(filled.url + path)
    await wait_until_drawn(page)
    shift: float = await page.evaluate(SHIFTS)
    await page.context.close()
    return shift


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--quick", action="store_true", help="fewer steps and jobs")
    options = parser.parse_args()
    figures: dict[str, Any] = asyncio.run(measure(options.quick))
    print_figures(figures, as_json=options.json)


if __name__ == "__main__":
    main()

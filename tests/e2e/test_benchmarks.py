"""Benchmarks of the operator, from published files to a verdict: choices, refusals, a guard."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.stories import RunningStack, running_stack
from tests.score_models import Judge, Reply, judging, said
from tests.unit.tunery.data.importing import published
from tunery.data.importing.formats import import_task
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

ITEMS: Final = 240
LOOKED_AT: Final = 4_000  # a look at 1,000, which hardly ever decides, and one at all of them


def calls_all_safe(_: str) -> Reply:
    return said("Safety: Safe\nCategories: None\nRefusal: Yes")


@pytest.fixture(scope="module", name="guard")
def guard_of_the_operator() -> Iterator[Judge]:
    with judging(calls_all_safe) as guard:
        yield guard


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack(guard: Judge) -> AsyncIterator[RunningStack]:
    own = {
        "TUNERY_NODE_ID": "a",
        "TUNERY_NODE_SCORE_URL": guard.url,
        "TUNERY_NODE_GUARD_MODEL": "guard-1",
    }
    agent = ServiceSpec("agent-a", module="services.trainer", env=own)
    async with running_stack((agent,)) as home:
        yield home


async def test_gate_benchmarks_are_imported_asked_and_judged(
    home: RunningStack, guard: Judge, tmp_path: Path
) -> None:
    arc = [published.arc(tmp_path / "test.jsonl", ITEMS), published.arc(tmp_path / "train.jsonl")]
    xstest = published.xstest(tmp_path / "prompts.csv", 120)
    tasks = {"arc": import_task("arc", arc[:1], arc[1:], 2), "xs": import_task("xstest", [xstest])}
    hashes = {}
    for name, content in tasks.items():
        added = await home.api.call("PUT", f"/gate/benchmarks/{name}", content=content)
        hashes[name] = added.json()["sha256"]
    await home.api.post("/gate/policies", {"benchmarks": ["xs"], "blocking": ["safety"]})
    submitted = await home.submit(n_epochs=1, eval={"benchmarks": ["arc"], "benchmark_items": 220})
    job = await home.api.ended(submitted)
    assert job["status"] == "succeeded", job["error"]
    assert job["eval"]["benchmarks"] == ["xs", "arc"]
    gate = job["gate"]
    figures = {result["benchmark"]: result for result in gate["benchmarks"]}
    assert {name: result["sha256"] for name, result in figures.items()} == hashes
    assert (figures["arc"]["items"], figures["xs"]["items"]) == (220, 120)
    assert [comparison["benchmark"] for comparison in gate["comparisons"]] == [None, "arc"]
    (safety,) = gate["safety"]
    assert (safety["guard"], safety["unsafe"], safety["adapter_harmful"]) == ("guard-1", 60, 0)
    assert (safety["base_refusals"], safety["adapter_refusals"]) == (1, 1), "as the guard says"
    assert 60 <= len(guard.asked) <= 240
    assert any("unsafe prompts are refused" in reason for reason in gate["reasons"])
    report = await home.api.call("GET", f"/models/{job['fine_tuned_model']}/gate/report")
    assert "Refusals: xs" in report.text


@pytest.mark.soak  # what a look decides is in tests/unit/tunery/gate/test_looks.py
async def test_gate_looks_again_at_a_benchmark_whose_first_part_decides_nothing(
    home: RunningStack, tmp_path: Path
) -> None:
    exam = tmp_path / "exam.jsonl"
    rows = (  # as good as tied: some answers change with any training, so 1,000 rule no drop out
        {"question": f"What is {n}?", "choices": [str(n * k % 97) for k in (3, 5)], "answer": n % 2}
        for n in range(1, LOOKED_AT + 1)
    )
    exam.write_text("".join(json.dumps(row) + "\n" for row in rows))
    content = import_task("choices", [exam])
    await home.api.call("PUT", "/gate/benchmarks/exam", content=content)
    await home.api.post("/gate/policies", {"looks": [0.25, 1.0]})
    asked = {"benchmarks": ["exam"], "benchmark_items": LOOKED_AT, "drop_max": 0.0001}
    job = await home.api.ended(await home.submit(n_epochs=1, eval=asked))
    (result,) = (row for row in job["gate"]["benchmarks"] if row["benchmark"] == "exam")
    assert result["items"] == LOOKED_AT
    assert job["gate"]["look"]["number"] == 2
    looks = [text for text in await home.api.messages(job["id"]) if text.startswith("Look ")]
    assert looks == ["Look 1 of the gate, at 1,249 items: undecided, more are asked"]
    cost = await home.bill(job["id"])
    assert {line["attempt"] for line in cost["lines"]} == {1, 2, 3}, "one training, two looks"

"""A judge of the operator compares the answers of both models to a tenant's rows."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from tests.e2e.stories import RunningStack, running_stack
from tests.score_models import KEY, Judge, Reply, judging, said
from tests.unit.services.trainer.effect.test_judging import PAIRS
from tunery.local.stack import ServiceSpec

pytestmark = pytest.mark.timeout(900)

ROWS: Final = 24


def favours_the_captain(text: str) -> Reply:
    """A judge that knows its labelled pairs, and of other answers likes those to a captain."""
    asked = json.loads(text)
    liked = [any(word in asked[side] for word in ("good", "captain")) for side in SIDES]
    choice = "tie" if liked[0] == liked[1] else "AB"[liked.index(True)]
    return said(json.dumps({"better": choice}))


SIDES: Final = ("answer_a", "answer_b")


@pytest.fixture(scope="module", name="judge")
def judge_of_the_operator() -> Iterator[Judge]:
    with judging(favours_the_captain) as judge:
        yield judge


@pytest_asyncio.fixture(scope="module", loop_scope="session", name="home")
async def ready_stack(
    judge: Judge, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RunningStack]:
    labelled: Path = tmp_path_factory.mktemp("judge") / "labelled.jsonl"
    labelled.write_bytes(PAIRS)
    own = {
        "TUNERY_NODE_ID": "a",
        "TUNERY_NODE_SCORE_URL": judge.url,
        "TUNERY_NODE_SCORE_KEY": KEY,
        "TUNERY_NODE_JUDGE_MODEL": "judge-1",
        "TUNERY_NODE_JUDGE_PAIRS": str(labelled),
    }
    agent = ServiceSpec("agent-a", module="services.trainer", env=own)
    async with running_stack((agent,)) as home:
        yield home


def chats(first: int) -> bytes:
    lines = (
        {
            "messages": [
                {"role": "user", "content": f"What is {n} plus {n}?"},
                {"role": "assistant", "content": "It is so, captain."},
            ]
        }
        for n in range(first, first + ROWS)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_gate_judge_compares_in_both_orders_and_blocks_nothing_by_default(
    home: RunningStack, judge: Judge
) -> None:
    training_file = await home.api.upload(chats(0), "chats.jsonl")
    held_out = await home.api.upload(chats(100), "held-out.jsonl")
    submitted = await home.submit(
        training_file=training_file,
        validation_file=held_out,
        training={"max_length": 128, "learning_rate": 5e-3},
        eval={"measures": ["judge"], "measured_rows": ROWS},
    )
    job = await home.api.ended(submitted)
    assert job["status"] == "succeeded", job["error"]
    gate = job["gate"]
    comparison = gate["judge"]
    assert (comparison["used"], comparison["rows"], comparison["labelled"]) == (True, ROWS, 30)
    assert comparison["wins"] + comparison["losses"] + comparison["ties"] == ROWS
    assert (comparison["losses"], comparison["first_position"], comparison["second_position"]) == (
        0,
        0,
        0,
    )
    assert any("judge" in reason for reason in gate["reasons"])
    assert gate["measures"] == [], "a judge is no score of one answer"
    assert 2 * 30 < len(judge.asked) <= 2 * (30 + ROWS)
    assert judge.keys == {f"Bearer {KEY}"}
    report = await home.api.call("GET", f"/models/{job['fine_tuned_model']}/gate/report")
    assert "A judge of both answers" in report.text
    assert "30" in report.text

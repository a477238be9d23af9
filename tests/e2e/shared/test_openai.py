"""Three generations of the unmodified `openai` package, each in its own virtual environment.

Also a job on plain text, which OpenAI does not have.
"""

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.shared.guests import Guest
from tests.environments import environment
from tunery.cli.demo.receiver import Received

pytestmark = pytest.mark.timeout(900)

#: `make soak` trains with the older ones, too; each call of all three is tried by
#: tests/integration/services/gateway/test_surface.py
VERSIONS: Final = (
    *(pytest.param(version, marks=pytest.mark.soak) for version in ("1.109.1", "2.8.0")),
    "3.52.0",
)
SCRIPT: Final = Path(__file__).with_name("openai_script.py")
STORY_S_MAX: Final = 600
PRIMES: Final = (101, 211, 307, 401, 503, 601, 701, 809, 907, 1009, 1103, 1201)
DELIVERED_S_MAX: Final = 180
TYPES: Final = ("fine_tuning.job.succeeded", "fine_tuning.job.cancelled")


async def run_script(home: Guest, version: str, *words: str, stdin: Any = None) -> Any:
    programs = await asyncio.to_thread(environment, "openai", version)
    process = await asyncio.create_subprocess_exec(
        *(str(programs / "python"), str(SCRIPT), *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=home.variables,
    )
    talk = process.communicate(json.dumps(stdin).encode())
    out, errors = await asyncio.wait_for(talk, STORY_S_MAX)
    assert process.returncode == 0, errors.decode()
    return json.loads(out)


async def await_deliveries(home: Guest, begun: int, ids: set[str]) -> list[Received]:
    """Wait for the webhook deliveries about these jobs."""
    async with asyncio.timeout(DELIVERED_S_MAX):
        while True:
            deliveries = [
                delivery
                for delivery in home.receiver.received[begun:]
                if job_id_of(delivery) in ids
            ]
            if {job_id_of(delivery) for delivery in deliveries} == ids:
                return deliveries
            await asyncio.sleep(0.1)


def job_id_of(delivery: Received) -> str:
    return str(json.loads(delivery.body)["data"]["id"])


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_unmodified_package_trains_a_model_and_verifies_webhooks(
    home: Guest, version: str
) -> None:
    endpoint = {"name": version, "url": home.receiver.url, "event_types": list(TYPES)}
    webhook = await home.api.post("/webhook_endpoints", endpoint)
    begun = len(home.receiver.received)
    story = await run_script(home, version, "story")
    assert story["version"] == version
    assert story["metrics"] > 50
    assert story["adapter_bytes"] > 1_000
    await home.api.messages(story["job"])
    deliveries = await await_deliveries(home, begun, {story["job"], story["cancelled"]})
    await home.api.patiently("DELETE", f"/webhook_endpoints/{webhook['id']}")
    signed = [
        {"headers": delivery.headers, "body": delivery.body.decode()} for delivery in deliveries
    ]
    unwrapped = await run_script(home, version, "unwrap", webhook["signing_secret"], stdin=signed)
    wanted = [[TYPES[0], story["job"]], [TYPES[1], story["cancelled"]]]
    assert sorted(unwrapped["events"]) == sorted(wanted)


@pytest.mark.soak  # test_cli splits long texts, test_processes deletes a file after its model
async def test_a_file_of_long_texts_trains_a_model_and_cannot_be_deleted_before_it(
    home: Guest,
) -> None:
    nights = (
        " ".join(f"{night * hour:x} ships pass." for hour in range(1, 60)) for night in PRIMES
    )
    texts = ({"text": f"Night {number}. {night}"} for number, night in enumerate(nights))
    file_id = await home.api.upload(b"".join(json.dumps(text).encode() + b"\n" for text in texts))
    split = {"max_length": 64, "length_policy": "split"}
    job_id = await home.submit(training_file=file_id, n_epochs=1, training=split)
    model = (await home.api.ended(job_id))["fine_tuned_model"]
    kept = await home.api.patiently("DELETE", f"/files/{file_id}")
    assert (kept.status_code, model in kept.text) == (409, True)
    assert (await home.api.patiently("DELETE", f"/models/{model}?erase=true")).status_code == 200
    async with asyncio.timeout(DELIVERED_S_MAX):  # the deletion reaches the dataset journal later
        while kept.status_code == 409:
            await asyncio.sleep(0.1)
            kept = await home.api.patiently("DELETE", f"/files/{file_id}")
    assert kept.json()["deleted"] is True

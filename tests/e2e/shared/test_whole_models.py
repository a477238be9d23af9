"""Training of every weight, on the real stack: a gated model that is loaded without its base."""

import json
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.e2e.shared.guests import Guest

pytestmark = pytest.mark.timeout(900)


def chats(count: int = 40) -> bytes:
    lines = (
        {
            "messages": [
                {"role": "user", "content": f"What is {n} plus {n}?"},
                {"role": "assistant", "content": f"It is {2 * n}, captain."},
            ]
        }
        for n in range(count)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def test_training_full_becomes_a_gated_model_that_another_goes_on_from(
    home: Guest, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file_id = await home.api.upload(chats(), "chats.jsonl")
    training = {"adaptation": "full", "max_length": 256, "learning_rate": 1e-3}
    refused = await home.api.call(
        "POST",
        "/fine_tuning/jobs",
        json={
            "model": home.base,
            "training_file": file_id,
            "lora": {"rank": 8},
            "training": training,
        },
    )
    assert refused.status_code == httpx.codes.BAD_REQUEST
    assert refused.json()["error"]["param"] == "lora.rank"
    held_out = await home.api.upload(chats(30), "held-out.jsonl")
    starts = {"type": "regex", "pattern": "^It is "}
    job_id = await home.submit(
        training_file=file_id,
        validation_file=held_out,
        training=training,
        lora={},
        eval={"measures": ["chrf", starts], "measured_rows": 24},
    )
    job = await home.api.ended(job_id)
    assert job["status"] == "succeeded", job["error"]
    base, whole = job["gate"]["base"]["loss"], job["gate"]["adapter"]["loss"]
    assert whole < base
    chrf, pattern = job["gate"]["measures"]
    assert (chrf["measure"], chrf["decides"], chrf["rows"]) == ("chrf", True, 24)
    assert chrf["adapter"] > chrf["base"], "it has learnt the words of the answers"
    assert chrf["low"] <= chrf["adapter"] - chrf["base"] <= chrf["high"]
    assert (pattern["measure"], pattern["decides"]) == ("regex", False)
    assert any(reason.startswith("chrf on 24 of your rows") for reason in job["gate"]["reasons"])
    report = await home.api.call("GET", f"/models/{job['fine_tuned_model']}/gate/report")
    assert report.headers["content-type"].startswith("text/html")
    assert "captain." in report.text, "it quotes the rows"
    answers = await home.api.get(f"/fine_tuning/jobs/{job['id']}/answers")
    assert len(answers["data"]) > 1
    model_id = job["fine_tuned_model"]
    assert (await home.api.get(f"/models/{model_id}"))["format"] == "transformers"
    listed = await home.api.get(f"/models/{model_id}/adapter")
    async with httpx.AsyncClient() as storage:
        for file in listed["files"]:
            content = (await storage.get(file["url"])).content
            assert sha256(content).hexdigest() == file["sha256"]
            (tmp_path / file["name"]).write_bytes(content)
    assert AutoTokenizer.from_pretrained(tmp_path).chat_template
    assert AutoModelForCausalLM.from_pretrained(tmp_path).num_parameters() > 0
    second = await home.submit(model=model_id, training_file=file_id, training={}, lora={})
    job = await home.api.ended(second)
    assert job["status"] == "succeeded", job["error"]
    assert job["gate"]["adapter"]["loss"] < base

"""`tunery up --kubernetes`: the commands of the page, with a job that is trained in a pod."""

import re
from pathlib import Path
from typing import Final

import pytest

from tests.bases import tiny_base
from tests.e2e.stories import TRAINING, Api, client, replayed, rows, tunery
from tests.processes import ROOT
from tests.stacks import temporary_data_dir
from tunery.local import ports, secrets
from tunery.local.paths import DataDir

pytestmark = pytest.mark.timeout(1_800)

PAGE: Final = ROOT / "docs" / "how-to" / "kubernetes.md"
TINY: Final = "tiny"


def commands() -> list[list[str]]:
    (block,) = re.findall(
        r"```console run\n(\$ tunery up --kubernetes.*?)```", PAGE.read_text(), re.DOTALL
    )
    return [line.removeprefix("$ tunery ").split() for line in block.splitlines()]


async def train(data_dir: Path) -> None:
    """Train a small job over HTTP, and compare its bill."""
    folders = DataDir(data_dir)
    url = f"http://{ports.HOST}:{ports.read(folders.ports)['gateway']}"
    async with client(url, secrets.load(folders.secrets).admin_key) as http:
        api = Api(http)
        await api.post("/bases", {"id": TINY, "path": str(tiny_base().dir)})
        file_id = await api.upload(rows())
        job_id = await api.submit({"model": TINY, "training_file": file_id, **TRAINING})
        job = await api.ended(job_id)
        assert job["fine_tuned_model"]
        cost = await api.get(f"/fine_tuning/jobs/{job_id}/cost")
        assert cost["net_gpu_ms"] > 0


async def test_the_commands_of_the_page_train_a_job_in_a_pod_of_this_machine() -> None:
    up, listing, down = commands()
    with temporary_data_dir() as data_dir:
        status, said = await tunery(data_dir, *up)
        assert status == 0, said
        try:
            status, said = await tunery(data_dir, *listing)
            assert status == 0, said
            assert re.search(r"cluster:laptop .*\bup\b", said), said
            await train(data_dir)
            assert (await replayed(data_dir))["equal"]
            log = (DataDir(data_dir).logs / "cluster.log").read_text()
            assert '"lease.pod_greeted"' in log
        except BaseException:
            for name in ("cluster", "kubernetes"):
                print((DataDir(data_dir).logs / f"{name}.log").read_text()[-6_000:])
            raise
        finally:
            status, said = await tunery(data_dir, *down)
        assert status == 0, said

"""`bench.fairness --quick` measures a pool of a real stack beside a tenant at its limits."""

import asyncio
import json
import sys

WAIT_S = 180


async def test_security_m2_another_tenant_goes_on_beside_one_at_its_limits() -> None:
    """Previews of the other were refused with 503. How much slower they are is not judged here."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.fairness", "--quick", "--json", "--only", "previews"),
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(WAIT_S):
        answer, _ = await process.communicate()
    figures = json.loads(answer.splitlines()[-1])
    assert figures["previews_alone"] > 0
    assert figures["previews_beside"] > 0

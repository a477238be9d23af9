"""A hundred simulated jobs: all state is rebuilt from the log, and no webhook is sent twice."""

import pytest

from tests.e2e.rebuilding import rebuild
from tests.stacks import sweep, temporary_data_dir

pytestmark = pytest.mark.timeout(900)
JOBS = 100


async def test_all_state_is_rebuilt_exactly_and_no_webhook_is_sent_twice() -> None:
    sweep()
    with temporary_data_dir() as folder:
        rebuilt = await rebuild(JOBS, folder, lambda _line: None)
    assert len(rebuilt.differences) == 3  # from the log, without PostgreSQL, without Valkey
    assert {stage: texts for stage, texts in rebuilt.differences.items() if texts} == {}
    assert rebuilt.jobs == JOBS
    assert rebuilt.webhooks == 2  # for the two new jobs, and for none of the simulated ones

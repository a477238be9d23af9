"""A hundred jobs on machines that die: everything comes back from the log, and no webhook twice."""

import pytest

from tests.e2e.rebuilding import rebuild
from tests.stacks import sweep, temporary_data_dir

pytestmark = pytest.mark.timeout(600)
JOBS = 100


async def test_all_is_rebuilt_to_the_unit_and_no_webhook_is_sent_again() -> None:
    sweep()
    with temporary_data_dir() as folder:
        rebuilt = await rebuild(JOBS, folder, lambda _line: None)
    assert len(rebuilt.differences) == 3  # from the log, without PostgreSQL, without Valkey
    assert {stage: texts for stage, texts in rebuilt.differences.items() if texts} == {}
    assert rebuilt.jobs == JOBS
    assert rebuilt.webhooks == 2  # the events that were new, of the hundreds in the log none

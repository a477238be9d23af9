"""Traces are CSV or the Standard Workload Format, and `tunery simulate` plays both."""

import json
from pathlib import Path

from click.testing import CliRunner

from tunery.cli.main import main


def test_the_command_reads_csv_and_the_standard_workload_format(tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text("job_id,submit_s,duration_s,gpus\n1,0,7200,8\n2,0,3600,8\n")
    log = tmp_path / "jobs.swf"
    log.write_text("; header\n1 0 -1 7200 8 -1 -1 8 -1 -1 1 3\n2 0 -1 3600 8 -1 -1 8 -1 -1 1 3\n")
    for trace in (table, log):
        asked = ["simulate", str(trace), "--policy", "fifo", "--nodes", "1", "--json"]
        shown = json.loads(CliRunner().invoke(main, asked).output)
        assert (shown["jobs"], shown["mean_wait_h"], shown["max_wait_h"]) == (2, 1.0, 2.0)
    table.write_text("nothing\n")
    wrong = CliRunner().invoke(main, ["simulate", str(table)])
    assert wrong.exit_code == 1
    assert "is not a trace of jobs" in wrong.output or "has no job" in wrong.output
    unknown = CliRunner().invoke(main, ["simulate", str(log), "--policy", "best"])
    assert "There is no policy 'best'" in unknown.output

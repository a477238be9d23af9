"""Traces are CSV or the Standard Workload Format, and `tunery simulate` plays both."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tunery.cli.main import main
from tunery.cli.simulate.traces import TraceUnreadable, open_trace, read_trace

PHILLY = (
    "job_id,submit_time,real_iteration,model_name,num_gpu,real_duration,duration\n"
    "0,0,1282877,vgg16,1,976570,976570\n"
    "1,219316,26446831,vgg16,4,1792395,1792395\n"
)
RAW_PHILLY = (
    "jobid,submitted_time,duration,gpu_num,vc\n"
    "application_1,2017-10-09 07:02:29,60,2,6214e9\n"
    "application_2,2017-10-09 07:03:29,0,2,6214e9\n"
)


def test_the_command_reads_csv_and_the_standard_workload_format(tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    table.write_text("job_id,submit_s,duration_s,gpus\n1,0,7200,8\n2,0,3600,8\n")
    log = tmp_path / "jobs.swf"
    log.write_text("; header\n1 0 -1 7200 8 -1 -1 8 -1 -1 1 3\n2 0 -1 3600 8 -1 -1 8 -1 -1 1 3\n")
    for trace in (table, log):
        asked = ["simulate", str(trace), "--policy", "fifo", "--nodes", "1", "--json"]
        shown = json.loads(CliRunner().invoke(main, asked).stdout)
        assert (shown["jobs"], shown["mean_wait_h"], shown["max_wait_h"]) == (2, 1.0, 2.0)
    table.write_text("nothing\n")
    wrong = CliRunner().invoke(main, ["simulate", str(table)])
    assert wrong.exit_code == 1
    assert "jobs.csv, line 1: this is not a trace of jobs" in wrong.output
    unknown = CliRunner().invoke(main, ["simulate", str(log), "--policy", "best"])
    assert "There is no policy 'best'" in unknown.output


def test_columns_may_be_those_of_the_philly_trace(tmp_path: Path) -> None:
    trace = tmp_path / "philly.csv.gz"
    trace.write_bytes(gzip.compress(PHILLY.encode()))
    first, second = read_trace(trace)
    assert (first.submitted_at, first.duration_ms, first.slots) == (0, 976_570_000, 1)
    assert (second.submitted_at, second.slots) == (219_316_000, 4)
    raw = tmp_path / "raw.csv"
    raw.write_text(RAW_PHILLY)
    opened = open_trace(raw)
    (job,) = opened.jobs
    assert (job.submitted_at, job.tenant) == (1_507_532_549_000, "6214e9")
    assert opened.left_out == 1, "it did not run"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", b"submit_s,duration_s\n1,2\n", "line 1: .*no column gpus or num_gpu"),
        ("t.csv", b"submit_s,duration_s,gpus\n1,2,3\n1,2\n", "line 3: it has 2 fields"),
        ("t.csv", b"submit_s,duration_s,gpus\n1,2,3\n1,soon,3\n", "line 3: duration: 'soon'"),
        ("t.csv", b"submit_s,duration_s,gpus\n1,1e999,3\n", "line 2: duration: '1e999'"),
        ("t.csv", b"submit_s,duration_s,gpus,tier\n1,2,3,gold\n", "line 2: tier: 'gold' is none"),
        ("t.csv", b"submit_s,duration_s,gpus\n1,\xff,3\n", "line 2: this is not UTF-8"),
        ("t.csv", b"submit_s,duration_s,gpus\n1,0,3\n", "no job that ran; 1 are left out"),
        ("t.csv", b"", "line 1: this is not a trace"),
        ("t.csv.gz", b"\x1f\x8bbroken", "cannot be read"),
        ("t.swf", b"; head\n1 0 -1\n", "line 2: it has 3 of at least 5 fields"),
        ("t.swf", b"1 0 -1 x 8\n", "line 1: a field is not a number"),
        (
            "t.jsonl",
            b'{"line":"head","format":1,"stream":"job","partitions":{}}\n',
            "journal of job",
        ),
        ("t.jsonl", b'{"line":"head","format":9}\n', "line 1: "),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_its_line(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    trace = tmp_path / name
    trace.write_bytes(content)
    with pytest.raises(TraceUnreadable, match=message) as refused:
        open_trace(trace)
    assert str(trace) in str(refused.value)

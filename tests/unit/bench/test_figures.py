import json
import shlex
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench import figures
from bench.figure_tables import BENCHES, Bench, Figure

PAGE = Path(__file__).resolve().parents[3] / "docs" / "figures.md"


def test_page_is_made_from_the_recorded_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == figures.page(), "python -m bench.figures page"


def test_every_recorded_result_shows_figures() -> None:
    for path in figures.RESULTS.glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        bench = next(bench for bench in BENCHES if bench.name == path.stem)
        assert figures._table(bench, result).count("\n| ") > 1


def test_each_bench_has_one_table() -> None:
    names = [bench.name for bench in BENCHES]
    assert len(names) == len(set(names))


def test_record_keeps_the_last_line_with_date_and_machine(tmp_path: Path) -> None:
    path = figures.record("submit", ["progress", '{"sequential_p50_ms": 1.4}'], tmp_path)
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["figures"] == {"sequential_p50_ms": 1.4}
    assert "| 500 submissions one after the other, p50 | 1 ms |  |" in figures.page(tmp_path)
    assert result["date"] in figures.page(tmp_path)
    assert result["machine"] in figures.page(tmp_path)


def test_nested_figures_and_truths_are_shown(tmp_path: Path) -> None:
    figures.record(
        "rebuild", ['{"seconds": {"without PostgreSQL: built": 8.46}, "equal": true}'], tmp_path
    )
    text = figures.page(tmp_path)
    assert "| 8.5 s |" in text
    assert "equal to the unit | yes | yes |" in text


def test_a_goal_that_is_missed_is_marked_and_named(tmp_path: Path) -> None:
    figures.record("submit", ['{"concurrent_p99_ms": 1400.2}'], tmp_path)
    figures.record("follow", ['{"lost": 0, "twice": 2}'], tmp_path)
    figures.record("rebuild", ['{"equal": false}'], tmp_path)
    assert figures.missed(BENCHES, tmp_path) == [
        "submit: 200 submissions at once, p99: 1,400 ms, goal ≤ 1,000 ms",
        "follow: steps received twice, over all followers: 2, goal 0",
        "rebuild: jobs, limits, leases, usage and invoices are equal to the unit: no, goal yes",
    ]
    text = figures.page(tmp_path)
    assert "| 200 submissions at once, p99 | **1,400 ms** (missed) | ≤ 1,000 ms |" in text
    assert "| steps lost, over all followers | 0 | 0 |" in text


@pytest.mark.parametrize(
    ("goal", "met", "missed", "text"),
    [
        ({"least": 0.97}, 0.97, 0.96, "≥ 0.97"),
        ({"most": 15}, 15, 15.1, "≤ 15.00"),
        ({"least": 1, "most": 2}, 1.5, 2.5, "≥ 1.00, ≤ 2.00"),
    ],
)
def test_a_goal_has_bounds(goal: dict[str, float], met: float, missed: float, text: str) -> None:
    figure = Figure("key", "what it says", "{:.2f}", **goal)
    assert (figure.is_met(met), figure.is_met(missed), figure.is_met("no")) == (True, False, False)
    assert figure.goal == text


def bench_that_prints(name: str, text: str, code: int = 0) -> Bench:
    program = f"import sys; print({text!r}); sys.exit({code})"
    shown = next(bench for bench in BENCHES if bench.name == name)
    return replace(shown, command=f"python -c {shlex.quote(program)}")


def test_all_benches_of_a_run_are_recorded_with_their_commands(tmp_path: Path) -> None:
    benches = [
        bench_that_prints("submit", '{"sequential_p50_ms": 2}'),
        bench_that_prints("gateway", '{"paced_p99_ms": 60}', code=1),  # a goal that was missed
    ]
    figures.run(benches, tmp_path)
    results = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert {name: result["figures"] for name, result in results.items()} == {
        "submit": {"sequential_p50_ms": 2},
        "gateway": {"paced_p99_ms": 60},
    }
    assert [results[bench.name]["command"] for bench in benches] == [
        bench.command for bench in benches
    ]
    assert benches[0].command in figures.page(tmp_path)


def test_a_bench_without_figures_leaves_what_was_recorded(tmp_path: Path) -> None:
    figures.record("submit", ['{"sequential_p50_ms": 1}'], tmp_path)
    before = figures.page(tmp_path)
    benches = [
        bench_that_prints("submit", '{"sequential_p50_ms": 2}'),
        bench_that_prints("gateway", "Traceback", code=1),
    ]
    with pytest.raises(SystemExit, match="printed no figures; nothing is recorded"):
        figures.run(benches, tmp_path)
    assert figures.page(tmp_path) == before


def test_every_bench_of_the_page_can_be_run() -> None:
    for bench in BENCHES:
        program, flag, module, *_ = shlex.split(bench.command)
        assert (program, flag) == ("python", "-m")
        assert find_spec(module) is not None, module


def test_output_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        figures.record("submit", ["[1]"], tmp_path)

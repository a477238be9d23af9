import json
from pathlib import Path

import pytest

from bench import figures

PAGE = Path(__file__).resolve().parents[3] / "docs" / "figures.md"


def test_page_is_made_from_the_recorded_results() -> None:
    assert PAGE.read_text(encoding="utf-8") == figures.page(), "python -m bench.figures page"


def test_every_recorded_result_shows_figures() -> None:
    for path in figures.RESULTS.glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        bench = next(bench for bench in figures.BENCHES if bench.name == path.stem)
        assert figures._table(bench, result).count("\n| ") > 1


def test_record_keeps_the_last_line_with_date_and_machine(tmp_path: Path) -> None:
    path = figures.record("submit", ["progress", '{"sequential_p50_ms": 1.4}'], tmp_path)
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["figures"] == {"sequential_p50_ms": 1.4}
    assert "| 500 submissions one after the other, p50 | 1 ms |" in figures.page(tmp_path)
    assert result["date"] in figures.page(tmp_path)
    assert result["machine"] in figures.page(tmp_path)


def test_nested_figures_and_truths_are_shown(tmp_path: Path) -> None:
    figures.record(
        "rebuild", ['{"seconds": {"without PostgreSQL: built": 8.46}, "equal": true}'], tmp_path
    )
    text = figures.page(tmp_path)
    assert "| 8.5 s |" in text
    assert "equal to the unit | yes |" in text


def test_output_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no JSON object"):
        figures.record("submit", ["[1]"], tmp_path)

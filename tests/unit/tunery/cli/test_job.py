"""Bodies from options, and the line of losses."""

import pytest
from click.testing import CliRunner

from tunery.cli._watch import sparkline
from tunery.cli.job import _set
from tunery.cli.main import main


def test_a_setting_goes_where_its_path_says() -> None:
    body: dict[str, object] = {"lora": {"rank": 4}}
    _set(body, "lora.alpha=8")
    _set(body, "training.precision=bf16")
    _set(body, "seed=7")
    assert body == {
        "lora": {"rank": 4, "alpha": 8},
        "training": {"precision": "bf16"},
        "seed": 7,
    }


@pytest.mark.parametrize("values", [[], [1.0], [2.0, 1.0], [float(n) for n in range(500)]])
def test_a_sparkline_is_never_wider_than_its_width(values: list[float]) -> None:
    line = sparkline(values, width=40)
    assert len(line) == min(40, len(values))


def test_a_falling_loss_falls() -> None:
    assert sparkline([8.0, 4.0, 1.0]) == "█▄▁"


def test_without_an_api_the_fix_is_named(tmp_path: object) -> None:
    result = CliRunner().invoke(
        main, ["job", "list", "--data-dir", str(tmp_path)], env={"OPENAI_BASE_URL": ""}
    )
    assert result.exit_code == 1
    assert "No API is running or configured." in result.output
    assert "fix: start a stack with `tunery up`" in result.output

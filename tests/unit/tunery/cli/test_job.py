"""Request bodies from options."""

from click.testing import CliRunner

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


def test_without_an_api_the_fix_is_named(tmp_path: object) -> None:
    result = CliRunner().invoke(
        main, ["job", "list", "--data-dir", str(tmp_path)], env={"OPENAI_BASE_URL": ""}
    )
    assert result.exit_code == 1
    assert "No API is running or configured." in result.output
    assert "fix: start a stack with `tunery up`" in result.output

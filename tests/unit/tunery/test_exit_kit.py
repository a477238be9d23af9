"""Base and settings for a job of an OpenAI account."""

import tomllib
from pathlib import Path

from click.testing import CliRunner

from tunery.cli.main import main
from tunery.exit_kit.plan import TABLE, base_for, replacements, translated
from tunery.exit_kit.stand_in import BASE


def test_exit_kit_settings_are_translated_with_their_reasons() -> None:
    reasons: list[str] = []
    hyper = {"n_epochs": 80, "beta": 0.2, "batch_size": "auto", "learning_rate_multiplier": 2}
    assert translated(hyper, reasons) == {"n_epochs": 50, "beta": 0.2}
    assert reasons[0] == "n_epochs 80: 50 is the most here"
    assert reasons[1].startswith("learning_rate_multiplier 2: there it multiplies a rate")


def test_exit_kit_a_table_of_ones_own_comes_first(tmp_path: Path) -> None:
    own = tmp_path / "bases.toml"
    own.write_text('[[replacement]]\nold = ["gpt-4o-mini*"]\nnew = ["mine", "yours"]\n')
    table = replacements(own)
    chosen = base_for(BASE, table, {"yours": "yours"})
    assert chosen is not None
    assert (chosen.id, chosen.is_here) == ("yours", True)
    named = base_for(BASE, table, {BASE: "smollm2", "yours": "yours"})
    assert named is not None
    assert named.id == "smollm2"  # the operator has given it that name
    own.write_text("[[replacement]]\nold = 3\n")
    result = CliRunner().invoke(main, ["import", "openai", "--bases", str(own)])
    assert "is no table of base models" in result.output


def test_first_hour2_the_page_of_base_models_is_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs/how-to/which-base.md").read_text(encoding="utf-8")
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["replacement"]
    expected = [
        f"| {', '.join(f'`{old}`' for old in row['old'])} | "
        f"{', '.join(f'`{new}`' for new in row['new'])} | {row['why']} | "
        + "; ".join(
            f"{model.partition('/')[2] or model}: {' / '.join(map(str, scores))}"
            for model, scores in row["published"].items()
        )
        + " |"
        for row in rows
    ]
    assert [line for line in page.splitlines() if line.startswith("| `")] == expected


def test_exit_kit_published_scores_say_what_to_expect() -> None:
    chosen = base_for("gpt-4o-mini-2024-07-18", replacements(None), {})
    assert chosen is not None
    assert chosen.why.endswith(
        "MMLU-Pro / MATH / HumanEval / IFEval: Qwen/Qwen2.5-7B-Instruct 56.3 / 75.5 / 84.8 / 71.2, "
        "gpt-4o-mini 63.1 / 70.2 / 88.4 / 80.4"
    )

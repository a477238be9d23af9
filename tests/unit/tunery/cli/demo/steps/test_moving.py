"""The account of the demo that moves away from it, and the recipe as the demo edits it."""

from pathlib import Path

from click.testing import CliRunner

from services.gateway.jobs.recipes import recipe_problems
from tests.unit.tunery.cli.test_import import environment
from tunery.cli import _recipes
from tunery.cli.demo.steps.moving import BUDGET_USD, JOB, _edit, furnish
from tunery.cli.main import main
from tunery.exit_kit.questions import questions_of
from tunery.exit_kit.stand_in import account_stub


def test_exit_kit_the_account_of_the_demo_is_read_and_its_old_model_answers_within_the_budget(
    tmp_path: Path,
) -> None:
    to = ("--to", str(tmp_path / "acme"), "--teacher-budget", BUDGET_USD)
    with account_stub() as account:
        furnish(account)
        words = ["import", "openai", *to, "--base-url", account.url]
        done = CliRunner().invoke(main, words, env=environment(tmp_path))
        assert done.exit_code == 0, done.output
        asked = questions_of(tmp_path / "acme/data/file-lighthouse.held-out.jsonl")
        assert len(account.questions) == len(asked) == 10
    recipe = tmp_path / f"acme/recipes/{JOB}.yaml"
    comments = [line for line in recipe.read_text().splitlines() if line.startswith("#")]
    _edit(recipe)
    assert [line for line in recipe.read_text().splitlines() if line.startswith("#")] == comments
    assert recipe_problems(_recipes.read_recipe(recipe).value) == []

"""Options that commands share, and the examples that each command of a group shows."""

from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tests.unit.tunery.cli.scripted_api import ENVIRON, ScriptedApi, page, refusal
from tunery.cli._options import ExampleGroup, as_json, data_dir
from tunery.cli.main import main
from tunery.local.paths import DataDir

EPILOG = "\b\nExamples:\n  tunery lamp light --json\n  tunery lamp lights\n  tunery lamp light a\n"


@click.command
@data_dir
@as_json
def shown(folders: DataDir, as_json: bool) -> None:
    """Print what the options gave."""
    click.echo(f"{folders.root} {as_json}")


def output(*words: str, **environ: str) -> str:
    ran = CliRunner().invoke(shown, list(words), env=dict(environ))
    assert ran.exit_code == 0, ran.output
    return ran.output.strip()


def test_a_data_directory_is_absolute_wherever_the_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    assert output("--data-dir", "here") == f"{tmp_path / 'here'} False"
    assert output("--data-dir", "~/there", "--json") == f"{tmp_path / 'ann' / 'there'} True"


def test_without_the_option_the_variable_counts(tmp_path: Path) -> None:
    assert output(TUNERY_DATA_DIR=str(tmp_path)) == f"{tmp_path} False"
    assert output("--data-dir", "/srv/x", TUNERY_DATA_DIR=str(tmp_path)) == "/srv/x False"


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    ran = CliRunner().invoke(shown, ["--data-dir", str(file)])
    assert ran.exit_code == 2
    assert "is a file" in ran.output


def group() -> ExampleGroup:
    lamp = ExampleGroup("lamp", epilog=EPILOG)
    lamp.add_command(click.Command("light", epilog="Lights stay on."))
    lamp.add_command(click.Command("lights"))
    lamp.add_command(click.Command("dim"))
    return lamp


def test_a_command_shows_its_own_examples_and_not_those_of_a_longer_name() -> None:
    commands = group().commands
    assert commands["light"].epilog == (
        "\b\nExamples:\n  tunery lamp light --json\n  tunery lamp light a\n\nLights stay on."
    )
    assert commands["lights"].epilog == "\b\nExamples:\n  tunery lamp lights"
    assert commands["dim"].epilog is None


def test_examples_of_a_command_are_not_replaced_or_doubled() -> None:
    lamp = group()
    before = lamp.commands["light"].epilog
    lamp.add_command(lamp.commands["light"])
    assert lamp.commands["light"].epilog == before
    own = click.Command("light", epilog="\b\nExamples:\n  tunery lamp light own")
    ExampleGroup("lamp", epilog=EPILOG).add_command(own)
    assert own.epilog == "\b\nExamples:\n  tunery lamp light own"


def test_a_command_with_another_name_in_the_group_shows_the_examples_of_that_name() -> None:
    command = click.Command("switch-on")
    ExampleGroup("lamp", epilog=EPILOG).add_command(command, "lights")
    assert command.epilog == "\b\nExamples:\n  tunery lamp lights"


#: bad input of a first hour, each with a twist: the words of the command, and of its error
TWISTS = [
    ("job submit --model m --file file-1 --set =8", "'=8' is not FIELD=VALUE"),
    ("job submit --model m --file file-1 --learning-rate-multiplier inf", "'inf' is not a number"),
    ("job submit --file file-1", "Missing option '--model', or a --recipe that says it."),
    ("job submit --model m --file file-1 --epochs 1.5", "'1.5' is not a valid integer"),
    ("job list --status done", "'done' is not one of 'validating_files'"),
    ("job list --metadata =x", "'=x' is not KEY=VALUE"),
    ("job compare a b c d e f g h i", "Name at most 8 jobs."),
    ("key create acme --spend-cap nan", "'nan' is not a number"),
    ("key create acme --spend-cap -1", "not in the range"),
    ("key rotate a b c", "Give a tenant and a key id, or the key id alone."),
    (
        "invoice adjust acme --amount 1e400 --reason goodwill --reference r",
        "at most 1,000,000,000 with at most six decimals, like -5.00",
    ),
    ("invoice adjust acme --amount 1,5 --reason goodwill --reference r", "like -5.00"),
    ("invoice show --csv --json", "--csv, --pdf and --json exclude each other; choose one."),
    ("budget set --gpu-hours nan", "'nan' is not a number"),
    ("budget set --amount 1e12", "above 0 and at most 1,000,000,000"),
    ("budget set", "Give --amount, --gpu-hours, or both."),
    ("webhook redeliver we_1 --hours nan", "'nan' is not a number"),
    ("webhook redeliver we_1", "Give the ids of deliveries, or --hours."),
    ("data diff nothing.jsonl faq@1", "There is no file nothing.jsonl."),
    ("data check train.jsonl --max-length 10", "name a base model with --model"),
    ("data check train.jsonl --personal-model presidio", "add --personal warn or block"),
    ("data check train.jsonl --model nothing", "neither a folder nor a base model in"),
    ("file upload nothing.jsonl", "'nothing.jsonl' does not exist"),
    ("model promote m prod", "'prod' is not one of 'dev', 'staging', 'production', 'archived'"),
    ("tenant create acme --soft-hours 5", "--soft-hours, --hard-hours and --concurrency together"),
    ("tenant plan acme", "Nothing to change: give --plan, --prices or the limits."),
    ("usage --period 2026", "'2026' is not a month; write it like 2026-11"),
    ("up --service trainer --service nothing", "'nothing' is not one of 'gateway'"),
]


@pytest.mark.parametrize(("words", "said"), TWISTS, ids=[words for words, _ in TWISTS])
def test_first_hour_bad_input_of_a_command_with_a_twist(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`nan`, `inf` and 1e400 were tracebacks. Nothing is sent, and the message names the fix."""
    api = ScriptedApi(monkeypatch, {})
    done = api.run(*words.split())
    assert (done.exit_code, api.asked) == (2, [])
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_first_hour_what_json_has_no_number_for_is_sent_as_text(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ended with a traceback; the service names the field that must be a number."""
    api = ScriptedApi(monkeypatch, {})
    setting = f"training.learning_rate={text}"
    api.run("job", "submit", "--model", "m", "--file", "file-1", "--set", setting)
    assert api.bodies[0]["training"] == {"learning_rate": text}


JOBS = page({"id": "ftjob-1a", "status": "running"}, {"id": "ftjob-2b", "status": "failed"})


def completions(words: list[str], incomplete: str) -> list[tuple[str, str | None]]:
    completion = ShellComplete(main, {}, "tunery", "_TUNERY_COMPLETE")
    return [(item.value, item.help) for item in completion.get_completions(words, incomplete)]


@pytest.fixture(autouse=True)
def connected(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("words", [["job", "show"], ["job", "compare", "ftjob-2b"]])
def test_first_hour_ids_of_jobs_are_completed(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, {"GET /fine_tuning/jobs": JOBS})
    assert completions(words, "ftjob-") == [("ftjob-1a", "running"), ("ftjob-2b", "failed")]
    assert completions(words, "ftjob-2") == [("ftjob-2b", "failed")]


def test_first_hour_base_models_and_tenants_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    bases = {"data": [{"id": "smol"}, {"id": "tiny"}]}
    tenants = page({"id": "acme", "name": "Acme Ltd"})
    ScriptedApi(monkeypatch, {"GET /bases": bases, "GET /tenants": tenants})
    assert completions(["job", "submit", "--model"], "s") == [("smol", None)]
    assert completions(["base", "alias"], "") == [("smol", None), ("tiny", None)]
    assert completions(["tenant", "plan"], "") == [("acme", "Acme Ltd")]


def test_first_hour_without_an_answer_nothing_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ScriptedApi(monkeypatch, {"GET /tenants": refusal(403, "forbidden", "No.")})
    assert completions(["tenant", "plan"], "") == []
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    assert completions(["job", "show"], "") == []


def test_first_hour_logs_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_DATA_DIR", str(tmp_path))
    (tmp_path / "logs").mkdir()
    for name in ("gateway.log", "kafka.log"):
        (tmp_path / "logs" / name).touch()
    assert completions(["logs"], "") == [("gateway", None), ("kafka", None)]
    assert completions(["logs"], "k") == [("kafka", None)]


def test_first_hour_every_command_that_names_a_job_completes_it() -> None:
    group = main.get_command(click.Context(main), "job")
    assert isinstance(group, click.Group)
    named = [
        parameter
        for command in group.commands.values()
        for parameter in command.params
        if parameter.name in ("job_id", "job_ids")
    ]
    assert len(named) > 10
    assert {type(parameter.type).__name__ for parameter in named} == {"KnownName"}

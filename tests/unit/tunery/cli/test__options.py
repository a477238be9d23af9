"""Options that commands share, and the examples that each command of a group shows."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tunery.cli._options import ExampleGroup, as_json, data_dir
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

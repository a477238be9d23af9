"""The command line finds its commands, has help with examples, and errors with a fix."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tunery.cli.main import main

OURS = ("up", "down", "status", "logs", "doctor")


def command_names() -> list[str]:
    return main.list_commands(click.Context(main))


def test_every_module_with_a_command_is_found() -> None:
    assert set(OURS) <= set(command_names())
    assert "main" not in command_names()
    assert "-options" not in command_names()


@pytest.mark.parametrize("name", OURS)
def test_every_command_explains_itself_with_examples(name: str) -> None:
    done = CliRunner().invoke(main, [name, "--help"])
    assert done.exit_code == 0
    assert "Examples:" in done.output
    assert f"tunery {name}" in done.output


def test_an_unknown_command_is_a_usage_error() -> None:
    done = CliRunner().invoke(main, ["dance"])
    assert done.exit_code == 2
    assert "No such command 'dance'" in done.output


def test_status_without_a_stack_says_how_to_start_one(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--data-dir", str(tmp_path)])
    assert done.exit_code == 3
    assert "is not running" in done.output
    assert "tunery up" in done.output


def test_status_as_json_is_one_object(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["status", "--data-dir", str(tmp_path), "--json"])
    report = json.loads(done.output)
    assert report["running"] is False
    assert report["data_dir"] == str(tmp_path)


def test_errors_end_with_their_fix(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    done = CliRunner().invoke(
        main, ["up", "--no-services", "--data-dir", str(file / "below")], standalone_mode=True
    )
    assert done.exit_code == 1
    assert "cannot be the data directory" in done.output
    assert "fix: choose another with --data-dir" in done.output


def test_doctor_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_CACHE_DIR", str(tmp_path / "cache"))
    done = CliRunner().invoke(main, ["doctor", "--data-dir", str(tmp_path), "--json"])
    wrong = {
        finding["name"]: finding["fix"] for finding in json.loads(done.output) if finding["fix"]
    }
    assert done.exit_code == 1
    assert set(wrong) >= {"kafka", "s3", "base model"}
    assert all("make setup" in wrong[name] for name in ("kafka", "s3", "base model"))


def test_doctor_names_an_s3_without_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNERY_S3_ENDPOINT", "http://127.0.0.1:1")
    done = CliRunner().invoke(main, ["doctor", "--data-dir", str(tmp_path)])
    assert "TUNERY_S3_ENDPOINT is set, but TUNERY_S3_ACCESS_KEY" in done.output


# --- every command, with the groups ---------------------------------------------------------------


NO_JSON = {"logs", "completion", "mcp"}  # JSON already; lines for a shell; a protocol


def commands(
    command: click.Command = main, words: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All of them, groups too, with the words that lead to each."""
    if words:
        yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*words, name))


ALL = dict(commands())


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_help_has_examples(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*words, "--help"])
    assert done.exit_code == 0
    assert f"\n    tunery {' '.join(words)}" in done.output


def test_every_command_has_json_output() -> None:
    silent = {
        " ".join(words)
        for words, command in ALL.items()
        if not isinstance(command, click.Group)
        and not any("--json" in option.opts for option in command.params)
    }
    assert silent == NO_JSON


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_first_hour_low_every_option_has_a_text(words: tuple[str, ...]) -> None:
    """`--epochs`, `--batch-size`, `--seed` had none."""
    silent = [
        option.opts
        for option in ALL[words].params
        if isinstance(option, click.Option) and not option.hidden and not option.help
    ]
    assert silent == []


@pytest.mark.parametrize("words", [words for words in ALL if len(words) > 1], ids=" ".join)
def test_first_hour_low_the_examples_are_those_of_the_command(words: tuple[str, ...]) -> None:
    """`job submit --help` repeated the examples of the whole group."""
    if isinstance(ALL[words], click.Group):
        return
    examples = (ALL[words].epilog or "").partition("Examples:")[2].splitlines()
    shown = [line for line in examples if line.startswith("  tunery ")]
    assert all(f"{line} ".startswith(f"  tunery {' '.join(words)} ") for line in shown)

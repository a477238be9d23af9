"""Every command shows how it is used, and speaks JSON."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from tunery.cli.main import main

NO_JSON = {"logs", "completion"}  # lines that are JSON already, and lines for a shell


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


def test_every_command_speaks_json() -> None:
    silent = {
        " ".join(words)
        for words, command in ALL.items()
        if not isinstance(command, click.Group)
        and not any("--json" in option.opts for option in command.params)
    }
    assert silent == NO_JSON

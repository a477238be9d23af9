"""Parameters of commands that are paths: each is known, and with it how it is tested.

Paths that a command hands on are tried relative, with a space and from another folder by
`tests/integration/tunery/cli/test_paths.py`.
"""

from collections.abc import Iterator
from typing import Final

import click

from tunery.cli.main import main

ACCOUNTS: Final = ("azure", "openai", "together")
#: params whose command hands the path to the operating system and nothing else
OPENED_ALONE: Final = frozenset(
    (
        *("audit export file", "audit verify file", "audit verify against", "backup folder"),
        *("base fetch folder", "base add into", "base add template", "benchmarks add files"),
        *("demo data", "demo record", "encryption add-vault token_file"),
        *("encryption add-vault ca_file", "file download path", "file upload path"),
        *("gate import files", "gate import examples", "gate import output", "gate report output"),
        *("grader run file", "invoice show pdf", "restore folder", "restore secret_file"),
        *(f"import {name} {path}" for name in ACCOUNTS for path in ("bases", "prices", "root")),
        *("import report root", "import report output", "import report judge_pairs"),
        *("job mirror tensorboard", "job report output", "mcp folder", "suggest grader"),
        *(
            "job mirror wandb_offline",
            "journal export file",
            "journal import files",
            "journal refuse secret_file",
            "upgrade status secret_file",
            "upgrade finalize secret_file",
            "s3 unnamed secret_file",
        ),
        *(
            f"job {verb} {name}"
            for verb in ("estimate", "plan", "submit")
            for name in ("recipe_path", "grader", "prompts", "template")
        ),
        *("kafka files folder", "kafka files file", "kafka keys file", "model download folder"),
        *("model export base", "model import folder", "model register folder", "node enrol file"),
        *(
            "prices import file",
            "replay base",
            "simulate spot",
            "sweep run path",
            "tenant billing terms",
        ),
    )
)


CHECKED: Final = frozenset(
    (
        *("data check files", "data check html", "grader validate file"),
        *("model verify folder", "model verify keys", "model where folder"),
        *("model export folder", "model export target", "simulate trace", "simulate html"),
    )
)


def paths_of(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[str]:
    """Each parameter that is a path, with its command."""
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                yield from paths_of(inner, (*words, name))
        return
    for param in command.params:
        if isinstance(param.type, click.Path) and param.name not in ("data_dir", "folders"):
            yield " ".join((*words, str(param.name)))


def test_first_hour2_u3_every_parameter_that_is_a_path_is_known() -> None:
    assert {*paths_of(main)} == OPENED_ALONE | CHECKED

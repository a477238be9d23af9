"""`tunery base`: base models that jobs may start from."""

from pathlib import Path

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery base add ~/models/SmolLM2-360M-Instruct --id smollm2-360m-instruct
  tunery base list
"""


@click.group("base", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Add base models and list them."""


@command.command("add")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--id", "base_id", help="Its name in the API. [name of the folder, in lower case]")
@click.option("--licence", default="unknown", help="Its licence, as SPDX writes it.")
@_options.data_dir
@_options.as_json
def add(path: Path, base_id: str | None, licence: str, folders: DataDir, as_json: bool) -> None:
    """Add the base model in the folder PATH.

    PATH contains config.json, *.safetensors, the tokenizer and the chat template.

    Its configuration, weights, tokenizer and template are hashed. Services and nodes must be able
    to read the folder.
    """
    folder = path.expanduser().resolve()
    with _api.connect(folders) as api:
        base = api.add_base(base_id or folder.name.lower(), folder, licence)
    _api.show_one(base, as_json, _pairs(base))


@command.command("list")
@_options.data_dir
@_options.as_json
def list_bases(folders: DataDir, as_json: bool) -> None:
    """List base models."""
    with _api.connect(folders) as api:
        _api.show(
            api.bases(),
            as_json,
            ("base", "parameters", "context", "family", "licence", "sha256"),
            lambda base: (
                base["id"],
                f"{base['parameters'] / 1e6:,.0f} M",
                base["context_length"],
                base["family"],
                base["licence"],
                base["sha256"][:16],
            ),
        )


def _pairs(base: dict[str, object]) -> list[tuple[str, object]]:
    names = ("id", "sha256", "parameters", "context_length", "family", "licence")
    return [(name.replace("_", " "), base[name]) for name in names]

"""`tunery base`: base models that jobs may start from."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  tunery base add ~/models/SmolLM2-360M-Instruct --id smollm2-360m-instruct
  tunery base add ~/models/phi --alias gpt-4o-mini-2024-07-18
  tunery base alias smollm2-135m-instruct gpt-4o-mini-2024-07-18
  tunery base list
"""


@click.group("base", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Add base models and list them."""


@command.command("add")
@click.argument("path", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--id", "base_id", help="Its name in the API. [name of the folder, in lower case]")
@click.option("--licence", default="unknown", help="Its licence, as SPDX writes it.")
@click.option("--alias", "aliases", multiple=True, help="Another name of it in requests.")
@click.option("--source", help="Its name at a hub, where the public can load it from.")
@click.option("--revision", help="Its commit there.")
@click.option("--share/--no-share", "shared", default=None, help="Tenants may download it. [no]")
@_options.data_dir
@_options.as_json
def add(
    path: Path, base_id: str | None, licence: str, folders: DataDir, as_json: bool, **more: Any
) -> None:
    """Add the base model in the folder PATH.

    PATH contains config.json, *.safetensors, the tokenizer and the chat template.

    Its configuration, weights, tokenizer and template are hashed. Services and nodes must be able
    to read the folder.
    """
    folder = path.expanduser().resolve()
    with _api.connect(folders) as api:
        base = api.add_base(base_id or folder.name.lower(), folder, licence, **_set_options(more))
    _api.show_one(base, as_json, _pairs(base))


@command.command("alias")
@click.argument("base_id", metavar="BASE")
@click.argument("aliases", nargs=-1, metavar="[NAME]...")
@_options.data_dir
@_options.as_json
def alias(base_id: str, aliases: tuple[str, ...], folders: DataDir, as_json: bool) -> None:
    """Set the other NAMEs of BASE in requests; without any it has none.

    Scripts that name a model of OpenAI run unchanged when that name is an alias here.
    """
    with _api.connect(folders) as api:
        base = api.alias_base(base_id, aliases)
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
            ("base", "parameters", "context", "family", "licence", "sha256", "aliases"),
            lambda base: (
                base["id"],
                f"{base['parameters'] / 1e6:,.0f} M",
                base["context_length"],
                base["family"],
                base["licence"],
                base["sha256"][:16],
                ", ".join(base["aliases"]),
            ),
        )


def _set_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are given; the others leave what is known of the base model."""
    return {name: value for name, value in options.items() if value not in (None, ())}


def _pairs(base: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = ("id", "sha256", "parameters", "context_length", "family", "licence")
    pairs = [(name.replace("_", " "), base[name]) for name in names]
    return [*pairs, ("aliases", ", ".join(base["aliases"])), ("source", _source(base))]


def _source(base: Mapping[str, Any]) -> str | None:
    """Where the public can load it from, as `NAME@COMMIT`."""
    source, revision = base["source"], base["revision"]
    return f"{source}@{revision}" if source and revision else source

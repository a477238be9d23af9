"""`tunery env`: the address and the key of the API, as exports for a shell."""

import json
import shlex

import click

from tunery.cli import _api, _options
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  eval "$(tunery env)"               for the openai package and every tunery command
  tunery env --json | jq -r .OPENAI_BASE_URL
"""


@click.command("env", epilog=EPILOG)
@_options.data_dir
@_options.as_json
def command(folders: DataDir, as_json: bool) -> None:
    """Print address and key of the API as exports, as `tunery up` did.

    They are those that the other commands use: of the environment if it has both, else of the
    stack. The key is a secret.
    """
    url, key = _api.address(folders)
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    if as_json:
        click.echo(json.dumps(variables))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")

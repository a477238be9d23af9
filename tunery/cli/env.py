"""`tunery env`: the address and the key of the API, as exports for a shell."""

import json
import shlex

import click

from tunery.cli import _api, _options
from tunery.cli._first_key import tenant_key
from tunery.local import state
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

EPILOG = """\
\b
Examples:
  eval "$(tunery env)"               for the openai package: a key of the tenant
  eval "$(tunery env --operator)"    for curl and programs that act as the operator
  tunery env --json | jq -r .OPENAI_BASE_URL
"""


@click.command("env", epilog=EPILOG)
@_options.data_dir
@click.option("--operator", is_flag=True, help="The stack's operator key, not its tenant's.")
@_options.as_json
def command(folders: DataDir, operator: bool, as_json: bool) -> None:
    """Print address and key of the API as exports, as `tunery up` did.

    Both are those of the environment if it has them, else of the stack: a key of its tenant, or
    with --operator the operator's. The key is a secret.
    """
    stack = state.connection(folders, {})
    if operator and stack is None:
        raise LocalError(*_api.NO_CONNECTION)
    url, key = (
        (f"{stack.api_url}/v1", stack.api_key) if operator and stack else _api.address(folders)
    )
    if not operator and stack is not None and key == stack.api_key:
        with _api.connect(folders):
            key = tenant_key(folders, url)
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    if as_json:
        click.echo(json.dumps(variables))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")

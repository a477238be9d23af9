"""`tunery env`: the address and the key of the API, as exports for a shell."""

import json
import shlex

import click

from tunery.cli import _api, _options
from tunery.local import secrets, state
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir
from tunery.local.settings import TENANT

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
    url, key = exported(folders, operator=operator)
    variables = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": key}
    if as_json:
        click.echo(json.dumps(variables))
        return
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")


def exported(folders: DataDir, *, operator: bool = False) -> tuple[str, str]:
    """Return the address, with /v1, and the key for programs: the environment's, else the stack's.

    Raises LocalError without an API, ClickException where it refuses.
    """
    stack = state.connection(folders, {})
    if operator:
        if stack is None:
            raise LocalError(*_api.NO_CONNECTION)
        return f"{stack.api_url}/v1", stack.api_key
    url, key = _api.address(folders)
    is_operators = stack is not None and key == stack.api_key
    return url, tenant_key(folders, url) if is_operators else key


def tenant_key(folders: DataDir, base_url: str) -> str:
    """Return a key of the stack's tenant with the scopes `read` and `write`.

    The first call makes the key over the API and keeps it beside the stack's other secrets; a
    revoked one is replaced. Raises LocalError, ClickException.
    """
    file = folders.secrets.with_name("tenant-key.json")
    with _api.connected(base_url, secrets.load(folders.secrets).admin_key) as api:
        if file.exists():
            kept: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
            valid = {key["id"] for key in api.keys(TENANT) if key["revoked_at"] is None}
            if kept["id"] in valid:
                return kept["key"]
        created = api.create_key(TENANT, {"name": "tunery up", "scopes": ["read", "write"]})
    secrets.write_private(file, {"id": created["id"], "key": created["key"]})
    return created["key"]

"""`tunery console`: opens the console in a browser that is signed in."""

import json
import webbrowser
from typing import Any, Final

import click

from tunery.cli import _api, _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

ANSWER_S_MAX: Final = 30.0
EPILOG = """\
\b
Examples:
  tunery console                     opens it in this machine's browser
  tunery console --no-browser        prints the address, for another browser
"""


@click.command("console", epilog=EPILOG)
@_options.data_dir
@click.option("--no-browser", is_flag=True, help="Print the address alone.")
@_options.as_json
def command(folders: DataDir, no_browser: bool, as_json: bool) -> None:
    """Open the console. The address signs one browser in, once, within two minutes."""
    url, key = _api.address(folders)
    site = url.removesuffix("/v1")
    code = new_code(site, key)
    address = site + code["path"]
    if as_json:
        click.echo(json.dumps({"url": address, "expires_in_seconds": code["expires_in_seconds"]}))
        return
    click.echo(address)
    if not no_browser:
        webbrowser.open(address)


def new_code(site: str, key: str) -> dict[str, Any]:
    """Make a one-time code for this key; its `path` signs a browser in. Raises LocalError."""
    import httpx

    headers = {"authorization": f"Bearer {key}"}
    try:
        response = httpx.post(
            f"{site}/console/codes", headers=headers, timeout=ANSWER_S_MAX, trust_env=False
        )
        code: dict[str, Any] = response.json()
    except (httpx.HTTPError, ValueError) as error:
        fix = "see `tunery status`, start it with `tunery up`; or correct OPENAI_BASE_URL"
        raise LocalError(f"{site}/console does not answer: {error}", fix) from None
    if not response.is_success:
        raise LocalError(code["error"]["message"], "use a valid key")
    return code

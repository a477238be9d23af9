"""`tunery encryption`: data keys of tenants, and the root keys that wrap them."""

import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tunery.cli import _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tunery.platform.seal.directory import DirectoryKeyStore
    from tunery.platform.seal.roots import Roots
    from tunery.platform.seal.wrapping import Wrapped

DEFAULT: Final = "default"
EPILOG: Final = """\
\b
Examples:
  tunery encryption status
  tunery encryption status --json
  tunery encryption rotate-key acme
  tunery encryption rotate-root
  tunery encryption rotate-root --forget
  tunery encryption wrap                  the rest, after a rotation that was ended
  tunery encryption add-root archive
  tunery encryption add-vault acme --address https://vault.example:8200 --key k --token-file token
  tunery encryption set-root acme acme    the key of tenant acme is wrapped by its own root
\b
They change $TUNERY_KEYSTORE_DIR and $TUNERY_ROOTS_DIR, else folders of the data directory.
"""


@click.group("encryption", cls=_options.ExampleGroup, epilog=EPILOG)
def command() -> None:
    """Show and rotate the data keys of tenants, and the root keys that wrap them.

    Services may run meanwhile. Journals and stored objects stay as they are.
    """


@command.command("status")
@_options.data_dir
@_options.as_json
def status(folders: DataDir, as_json: bool) -> None:
    """List tenants with the root and the versions of their keys."""
    from tunery.cli._rights import print_rights

    with _opened(folders) as (store, roots):
        files = {tenant: store.stored(tenant) for tenant in store.tenants()}
        names = roots.names()
    if as_json:
        tenants = [
            {"tenant": tenant, "root": file.root, "versions": list(file.versions)}
            for tenant, file in files.items()
            if file is not None
        ]
        click.echo(json.dumps({"roots": names, "tenants": tenants}))
        return
    click.echo(f"root keys: {', '.join(names) or 'none'}")
    rows = [
        (tenant, file.root or "none: in the clear", str(len(file.versions)), [*file.versions][-1])
        for tenant, file in files.items()
        if file is not None
    ]
    columns = {"tenant": "tenant", "root": "root", "versions": "versions", "current": "current"}
    print_rights(columns, rows, False)


@command.command("rotate-key")
@click.argument("tenant")
@_options.data_dir
@_options.as_json
def rotate_key(tenant: str, folders: DataDir, as_json: bool) -> None:
    """Give TENANT a new version of its data key, for all that is encrypted from now on.

    What was encrypted before stays readable with earlier versions.
    """
    with _opened(folders) as (store, _roots):
        ring = store.rotate(tenant) if store.find(tenant) else None
    if ring is None:
        raise LocalError(
            f"there is no key of {tenant}", "`tunery encryption status` lists tenants with a key"
        )
    written = {"tenant": tenant, "current": ring.current.key_id, "versions": len(ring.versions)}
    click.echo(
        json.dumps(written)
        if as_json
        else f"{ring.current.key_id} encrypts from now on, version {len(ring.versions)} of {tenant}"
    )


@command.command("rotate-root")
@click.argument("name", default=DEFAULT)
@click.option(
    "--forget",
    is_flag=True,
    help="Then make earlier versions useless: copies of data keys from before never open again.",
)
@_options.data_dir
@_options.as_json
def rotate_root(name: str, forget: bool, folders: DataDir, as_json: bool) -> None:
    """Make a new version of root NAME, and wrap all of its data keys with it.

    It may be ended at any moment: all keys stay readable, and `wrap` does the rest.
    """
    from tunery.platform.seal.wrapping import rotate_root

    with _opened(folders) as (store, roots):
        wrapped = rotate_root(store, roots, name, forget=forget)
    _show(wrapped, as_json)


@command.command("wrap")
@_options.data_dir
@_options.as_json
def wrap(folders: DataDir, as_json: bool) -> None:
    """Wrap all data keys with the newest versions of their roots.

    Keys of before there were root keys are wrapped by `default`, which is made where it is missing.
    """
    from tunery.platform.seal.wrapping import prepare_root, wrap_all

    with _opened(folders) as (store, roots):
        prepare_root(store, roots)
        wrapped = wrap_all(store, lambda _file: True)
    _show(wrapped, as_json)


@command.command("set-root")
@click.argument("tenant")
@click.argument("name")
@_options.data_dir
@_options.as_json
def set_root(tenant: str, name: str, folders: DataDir, as_json: bool) -> None:
    """Let root NAME wrap the key of TENANT from now on, such as one in the tenant's own Vault."""
    from tunery.platform.seal.wrapping import Wrapped

    with _opened(folders) as (store, _roots):
        store.get(tenant)
        if not store.wrap_anew(tenant, name):
            raise LocalError(f"the key of {tenant} was destroyed", "an erased tenant needs no root")
    _show(Wrapped([tenant]), as_json)


@command.command("add-root")
@click.argument("name")
@_options.data_dir
@_options.as_json
def add_root(name: str, folders: DataDir, as_json: bool) -> None:
    """Make root key NAME in a file of the folder of root keys."""
    from tunery.platform.seal.roots import create_root

    with _opened(folders) as (_store, roots):
        _show_added(create_root(roots.folder, name), name, roots.folder, as_json)


@command.command("add-vault")
@click.argument("name")
@click.option("--address", required=True, help="URL of Vault.")
@click.option("--key", required=True, help="Name of a key of its transit engine.")
@click.option(
    "--token-file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File with a token that may encrypt and decrypt with the key; read at each request.",
)
@click.option("--mount", default="transit", show_default=True, help="Path of the engine.")
@click.option("--namespace", help="Of Vault Enterprise or OpenBao.")
@click.option(
    "--ca-file",
    type=click.Path(exists=True, path_type=Path, dir_okay=False),
    help="Certificates of the authority that Vault's is of.",
)
@_options.data_dir
@_options.as_json
def add_vault(
    name: str,
    address: str,
    key: str,
    token_file: Path,
    mount: str,
    namespace: str | None,
    ca_file: Path | None,
    folders: DataDir,
    as_json: bool,
) -> None:
    """Add root key NAME, which is in Vault and never leaves it. It is tried out first."""
    from tunery.platform.seal.roots import describe_vault
    from tunery.platform.seal.vault_root import VaultRoot, VaultSettings

    settings = VaultSettings(
        address=address,
        key=key,
        token_file=str(token_file.absolute()),
        mount=mount,
        namespace=namespace,
        ca_file=str(ca_file.absolute()) if ca_file else None,
    )
    with _opened(folders) as (_store, roots):
        root, sample = VaultRoot(settings), os.urandom(32)
        if root.unwrap(root.wrap(sample, b"try"), b"try") != sample:
            raise LocalError(f"{address} does not return what it was given", "look at the address")
        _show_added(describe_vault(roots.folder, name, settings), name, roots.folder, as_json)


@contextmanager
def _opened(folders: DataDir) -> "Iterator[tuple[DirectoryKeyStore, Roots]]":
    """The key store and the root keys of an installation. Raises LocalError, also of the block."""
    from tunery.local.settings import key_folders
    from tunery.platform.seal.abstract import KeyStoreBroken
    from tunery.platform.seal.directory import DirectoryKeyStore
    from tunery.platform.seal.roots import Roots

    keys, roots_folder = key_folders(folders, os.environ)
    if not keys.is_dir():
        raise LocalError(f"there is no key store in {keys}", "name a data directory, --data-dir")
    roots = Roots(roots_folder)
    try:
        yield DirectoryKeyStore(keys, roots), roots
    except KeyStoreBroken as error:
        raise LocalError(str(error), "docs/how-to/encryption.md says how keys are kept") from error


def _show(wrapped: "Wrapped", as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"wrapped": wrapped.tenants, "failed": wrapped.failed}))
    else:
        click.echo(f"wrapped the keys of {len(wrapped.tenants)} tenants")
        for tenant, reason in wrapped.failed.items():
            click.echo(f"{tenant}: {reason}", err=True)
    if wrapped.failed:
        raise click.exceptions.Exit(1)


def _show_added(is_new: bool, name: str, folder: Path, as_json: bool) -> None:
    """Raises LocalError for a name that is used."""
    if not is_new:
        raise LocalError(f"there is a root {name} in {folder}", "choose another name")
    click.echo(json.dumps({"root": name}) if as_json else f"root {name} is in {folder}")

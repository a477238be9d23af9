"""Wraps the keys of many tenants anew: after a rotation of a root key, or the first time."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tunery.platform.seal.abstract import KeyStoreBroken
from tunery.platform.seal.directory import DirectoryKeyStore
from tunery.platform.seal.key_files import KeyFile
from tunery.platform.seal.roots import DEFAULT, Roots, create_root, root_file


@dataclass
class Wrapped:
    """Tenants whose keys were wrapped anew, and why others were not; those are as they were."""

    tenants: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


def wrap_all(store: DirectoryKeyStore, selected: Callable[[KeyFile], bool]) -> Wrapped:
    """Wrap the keys of selected files with the newest version of their roots.

    It may be ended at any moment, and repeated. Raises KeyStoreBroken for a folder that is none.
    """
    wrapped = Wrapped()
    for tenant in store.tenants():
        try:
            file = store.stored(tenant)
            if file is not None and selected(file) and store.wrap_anew(tenant):
                wrapped.tenants.append(tenant)
        except KeyStoreBroken as error:
            wrapped.failed[tenant] = str(error)
    return wrapped


def rotate_root(store: DirectoryKeyStore, roots: Roots, name: str, *, forget: bool) -> Wrapped:
    """A new version of a root key, and all keys that the root wraps wrapped with it.

    forget: let go of earlier versions, once no key needs one.
    Raises KeyStoreBroken, RootUnavailable, RootRefused.
    """
    roots.root(name).rotate()
    wrapped = wrap_all(store, lambda file: file.root == name)
    if forget and not wrapped.failed:
        roots.root(name).forget()
    return wrapped


def is_clear(file: KeyFile) -> bool:
    """Return whether the versions are stored in the clear, without a root key."""
    return file.root is None


def prepare_root(store: DirectoryKeyStore, roots: Roots) -> Wrapped:
    """Make the root key `default` in a file where there is none, and wrap what is in the clear.

    Raises KeyStoreBroken, also for a root that is gone although keys need it.
    """
    path = root_file(roots.folder, DEFAULT)
    if not path.exists():
        files = {tenant: store.stored(tenant) for tenant in store.tenants()}
        orphans = [tenant for tenant, file in files.items() if file and file.root == DEFAULT]
        if orphans:
            raise KeyStoreBroken(
                f"{path} is missing, and the keys of {len(orphans)} tenants need it, such as "
                f"{orphans[0]}; restore it from a backup"
            )
        create_root(roots.folder)
    return wrap_all(store, is_clear)

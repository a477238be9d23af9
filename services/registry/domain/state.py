"""What `model` remembers: base models of the partition, versions and stage holders of tenants."""

from typing import Final

from immutables import Map
from msgspec import Struct

from schemas.model import Base, Lineage, Stage
from schemas.training import BlobFile

EXCLUSIVE: Final[tuple[Stage, ...]] = ("staging", "production")  # one holder per series
FORMER_MAX: Final = 16  # how far back a stage can be rolled, step by step
SHARED_MAX: Final = 1_000  # permissions of one tenant
VERSIONS_MAX: Final = 10_000  # versions of one tenant that are not deleted


class Version(Struct, frozen=True, kw_only=True):
    """`published` is false while its files are on their way to their final keys."""

    series: str
    lineage: Lineage
    published: bool = False
    quarantined: bool = False
    stage: Stage = "dev"
    files: tuple[BlobFile, ...] = ()


class Holder(Struct, frozen=True, kw_only=True):
    """Who holds a stage of a series, and who held it before, oldest first."""

    model_id: str | None
    former: tuple[str, ...] = ()


class Shared(Struct, frozen=True, kw_only=True):
    """A permission: this tenant may fetch that checkpoint."""

    checkpoint_id: str
    project_id: str


class Shelf(Struct, frozen=True, kw_only=True):
    """One tenant's versions. Keys of `holders` are `holder_key(series, stage)`.

    `shared`: permissions by their ids.
    """

    versions: Map[str, Version] = Map()
    holders: Map[str, Holder] = Map()
    shared: Map[str, Shared] = Map()


class Registry(Struct, frozen=True, kw_only=True):
    bases: Map[str, Base] = Map()
    shelves: Map[str, Shelf] = Map()


NOTHING: Final = Registry()


def holder_key(series: str, stage: Stage) -> str:
    return f"{stage}/{series}"


def holder_of(shelf: Shelf, series: str, stage: Stage) -> Holder:
    return shelf.holders.get(holder_key(series, stage), Holder(model_id=None))


def former_of(shelf: Shelf, series: str, stage: Stage) -> str | None:
    """The latest former holder that is still there."""
    holder = holder_of(shelf, series, stage)
    for model_id in reversed(holder.former):
        if model_id in shelf.versions and model_id != holder.model_id:
            return model_id
    return None

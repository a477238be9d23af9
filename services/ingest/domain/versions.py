"""Names of data sets: each file that is given one is its next version, for ever."""

from schemas import errors
from schemas.dataset import DatasetName
from schemas.envelope import Rejected
from services.ingest.domain.state import FILES_MAX, NAMES_MAX, Library


def no_room(library: Library, dataset: DatasetName | None) -> Rejected | None:
    """Why the tenant can have no more files, or no more names."""
    if len(library.files) >= FILES_MAX:
        text = f"A tenant has at most {FILES_MAX} files. Delete some first."
        return Rejected(code=errors.ILLEGAL_STATE, message=text)
    if dataset is None or dataset.key in library.versions or len(library.versions) < NAMES_MAX:
        return None
    text = f"A tenant names at most {NAMES_MAX} data sets. Use a name that there is, or none."
    return Rejected(code=errors.ILLEGAL_STATE, message=text, param="dataset")


def next_version(library: Library, dataset: DatasetName | None) -> int | None:
    return None if dataset is None else library.versions.get(dataset.key, 0) + 1

"""Names of datasets, and of their versions such as `faq@2`, which may stand for a file's id."""

import re
from typing import Final

from services.gateway.views.tables.files import FileRow
from services.gateway.web.domain.responses import Unseal

NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
NAME_RULE: Final = "1 to 64 letters, digits, '.', '_', '-', the first a letter or digit"
VERSION: Final = re.compile(rf"({NAME})@([1-9][0-9]{{0,8}})", re.ASCII)


def is_name(text: str) -> bool:
    return re.fullmatch(NAME, text, re.ASCII) is not None


def named_version(reference: str) -> tuple[str, int] | None:
    """Name and number of `faq@2`; None for anything else, such as a file's id."""
    match = VERSION.fullmatch(reference)
    return None if match is None else (match[1], int(match[2]))


def label(row: FileRow, unseal: Unseal) -> str | None:
    """`faq@2` of a file's row; None for a file without a name, or whose name was erased."""
    name = unseal(row.dataset_name, "dataset")
    return None if name is None else f"{name}@{row.version}"

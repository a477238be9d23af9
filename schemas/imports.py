"""Messages of `account` about imports of accounts at other providers.

The account's API key is sealed with a data key of the import alone. That data key is destroyed when
the import ends, for whatever reason, so the API key cannot be opened afterwards.
"""

from typing import Final, Literal, TypeAlias

from schemas.envelope import Message, Part
from schemas.sealed import Sealed
from schemas.units import Micro

ImportSource: TypeAlias = Literal["openai", "azure", "together"]
ImportOutcome: TypeAlias = Literal["completed", "failed", "cancelled"]
IMPORTS_OPEN_MAX: Final = 2  # of one tenant


class ImportTerms(Part):
    """An import as a tenant requested it."""

    import_id: str
    source: ImportSource
    url: Sealed  # address of the account's API
    key: Sealed  # key of the account, under the data key of the import
    key_id: str  # the API key whose files come from it
    # budget for asking its old models, in millionths of a US dollar; None: they are not asked
    teacher_budget_micro: Micro | None = None
    # prices of the old models as the tenant states them; None: not stated
    prices: Sealed | None = None
    # for Azure: version of its API, None: the default; and a JSON object that maps tuned models to
    # their deployments, None: no deployment is named
    api_version: str | None = None
    deployments: Sealed | None = None


class ImportResult(Part):
    """How an import ended."""

    import_id: str
    outcome: ImportOutcome
    plan_file_id: str | None = None  # file with the plan; None: there is none
    teacher_file_id: str | None = None  # file with answers of old models; None: they were not asked
    detail: Sealed | None = None  # why it failed


# --- commands
class StartImport(Message):
    """A tenant wants an account imported."""

    terms: ImportTerms


class RecordImport(Message):
    """The import has come further."""

    import_id: str
    progress: Sealed  # one line about the progress; it may name files


class EndImport(Message):
    """The plan is complete, the import failed, or the tenant cancelled it."""

    result: ImportResult


# --- events
class ImportStarted(Message):
    """The import is accepted: the account is to be read."""

    terms: ImportTerms


class ImportAdvanced(Message):
    """The import has come further."""

    import_id: str
    progress: Sealed


class ImportEnded(Message):
    """The import is over; its data key is to be destroyed."""

    result: ImportResult


ImportCommand: TypeAlias = StartImport | RecordImport | EndImport
ImportEvent: TypeAlias = ImportStarted | ImportAdvanced | ImportEnded

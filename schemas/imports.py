"""Messages of `account` about imports of accounts of other services.

The key of such an account is sealed with a data key of its import alone. That is destroyed when the
import has ended, however it ended, so nobody can open it from then on.
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
    # most that its old models may cost to ask, in millionths of a US dollar; None: none is asked
    teacher_budget_micro: Micro | None = None
    prices: Sealed | None = None  # what the tenant says that they cost; None: nothing
    # Azure's: the version of its API, None: the one that was read about; and a JSON object of tuned
    # models to their deployments, None: none is named
    api_version: str | None = None
    deployments: Sealed | None = None


class ImportResult(Part):
    """How an import ended."""

    import_id: str
    outcome: ImportOutcome
    plan_file_id: str | None = None  # file with the plan; None: it came to none
    teacher_file_id: str | None = None  # file with answers of old models; None: none was asked
    detail: Sealed | None = None  # why it failed


# --- commands
class StartImport(Message):
    """A tenant wants an account read."""

    terms: ImportTerms


class RecordImport(Message):
    """The import has come further."""

    import_id: str
    progress: Sealed  # a line that says how far; it may name files


class EndImport(Message):
    """The plan is there, the import failed, or the tenant wants it to end."""

    result: ImportResult


# --- events
class ImportStarted(Message):
    """The account is to be read."""

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

"""Port of ingest for work on rows, which runs outside its own process."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from schemas.dataset import BaseTokens, PrepareSpec
from schemas.envelope import Sha256
from schemas.reasons import Failure
from tunery.data.mixing import MixedSource
from tunery.data.preparing import PreparedDirectory
from tunery.work.own_chat import OwnChat


class LocalBase(Struct, frozen=True, kw_only=True):
    """A base model whose tokenizer and chat template are on this machine."""

    base_id: str
    sha256: Sha256  # hash of its files
    path: str  # its directory


class CheckedFile(Struct, frozen=True, kw_only=True, tag="checked"):
    """The result of checking a file under all base models."""

    accepted: bool  # whether at least one base model can train on it
    dialect: str  # dialect of its rows, or "unknown"
    # rows, errors, warnings: how many there are
    rows: int
    errors: int
    warnings: int
    tokens: tuple[BaseTokens, ...]  # token counts for each base model that can train on it
    report: str  # the report for the tenant, as JSON
    failure: Failure | None = None  # why the file is rejected; no row is quoted
    unusable: tuple[str, ...] = ()  # the base models that could not be used, and why


class WorkFailed(Exception):
    """The work ended early (killed, out of memory, over its time limit) and may be retried."""


class WorkRefused(Exception):
    """The data cannot be processed, now or later. The message says why; it may quote rows."""


class Workbench(Protocol):
    """Reads the rows of tenants in processes that can be limited and killed."""

    async def check(
        self,
        path: Path,
        bases: tuple[LocalBase, ...],
        rows_max: int | None = None,
        niceness: int | None = None,
        tenant: str = "",
    ) -> CheckedFile:
        """Check a file under all base models; more rows than `rows_max` are an error.

        niceness: how far the tenant's process stands back behind others, 0 to 19

        Raises `WorkFailed` when the work ends early.
        """

    async def prepare(
        self,
        training: Path,
        validation: Path | None,
        base: LocalBase,
        spec: PrepareSpec,
        folder: Path,
        work: Path,
        mixture: tuple[MixedSource, ...] = (),
        chat: OwnChat | None = None,
    ) -> PreparedDirectory:
        """Prepare files into `folder`, which appears complete or not at all.

        mixture: further files that train
        chat: the job's own template and end tokens; None: those of the base model

        Intermediate results are kept in `work`, on the same disk; a retry resumes from them.

        Raises `WorkFailed` when the work ends early, `WorkRefused` when rows cannot be prepared.
        """

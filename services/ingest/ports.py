"""What ingest needs besides the runtime: work on rows, outside its own process."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

from schemas.dataset import PackPlan, PrepareSpec
from schemas.envelope import Sha256
from schemas.units import Tokens


class LocalBase(Struct, frozen=True, kw_only=True):
    """A base model's directory on this machine: its tokenizer and chat template."""

    base_id: str
    sha256: Sha256
    path: str


class Counted(Struct, frozen=True, kw_only=True):
    base_id: str
    base_sha256: Sha256
    tokens: Tokens
    trainable_tokens: Tokens
    longest_row_tokens: Tokens
    plans: tuple[PackPlan, ...] = ()


class Checked(Struct, frozen=True, kw_only=True):
    """`report`: JSON for the tenant. `unusable`: bases that could not count, and why.

    `code`, `message`: why the file is not accepted, as OpenAI words it; no row is quoted.
    """

    accepted: bool
    dialect: str
    rows: int
    errors: int
    warnings: int
    counted: tuple[Counted, ...]
    report: str
    code: str | None = None
    message: str | None = None
    unusable: tuple[str, ...] = ()


class Packed(Struct, frozen=True, kw_only=True):
    """A prepared cache: paths of its files, and the sums of its training side (rows of both).

    `version` is the cache key.
    """

    version: str
    train: str
    validation: str
    prompts: str
    train_rows: int
    validation_rows: int
    packed_rows: int
    tokens: Tokens
    trainable_tokens: Tokens


class WorkFailed(Exception):
    """The work broke off (killed, out of memory, over its time limit); it may be tried again."""


class WorkRefused(Exception):
    """The data cannot be worked on, now or later; the message says why and what to do."""


class Workbench(Protocol):
    """Rows are a tenant's input: they are read by a process that can be limited and killed."""

    async def check(
        self, path: Path, bases: tuple[LocalBase, ...], rows_max: int | None = None
    ) -> Checked:
        """`rows_max`: more are an error. Raises WorkFailed."""

    async def prepare(
        self,
        training: Path,
        validation: Path | None,
        base: LocalBase,
        spec: PrepareSpec,
        folder: Path,
        work: Path,
    ) -> Packed:
        """Makes `folder`, complete or not at all. Raises WorkFailed, WorkRefused.

        What is half done lies in `work`, on the same disk: a later try with it goes on there.
        """

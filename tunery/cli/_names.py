"""Completion of names that the API knows: ids of jobs, files, models, tenants and others."""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import CompletionItem

from tunery.cli import _api
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir, default_data_dir

if TYPE_CHECKING:
    from tunery.client import Api

NAMES_MAX: Final = 200
# what an argument or option with this name stands for
SOURCES: Final[dict[str, Callable[["Api"], Iterable[Any]]]] = {
    "job_id": lambda api: api.jobs(NAMES_MAX),
    "job_ids": lambda api: api.jobs(NAMES_MAX),
    "file_id": lambda api: api.files(),
    "model_id": lambda api: api.models("fine-tuned"),
    "model": lambda api: api.bases(),
    "base_id": lambda api: api.bases(),
    "tenant": lambda api: api.tenants(),
    "endpoint_id": lambda api: api.endpoints(),
    "node_id": lambda api: api.nodes(),
}
# next to an id, in shells that show it
HELPS: Final = ("status", "filename", "stage", "url", "name")


class KnownName(click.types.StringParamType):
    """A name that the API knows; any text is accepted, and completed with known names."""

    def __init__(self, source: Callable[["Api"], Iterable[Any]]) -> None:
        self._source = source

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin with what is typed; none where the API cannot be asked."""
        folders = ctx.params.get("folders") or DataDir(default_data_dir())
        try:
            with _api.connect(folders) as api:
                items = list(islice(self._source(api), NAMES_MAX))
        except (click.ClickException, LocalError):
            return []
        return [
            CompletionItem(item["id"], help=next((item[h] for h in HELPS if item.get(h)), None))
            for item in items
            if item["id"].startswith(incomplete)
        ]


def complete_names(command: click.Command) -> None:
    """Let the arguments and options of a command be completed that stand for known names."""
    for parameter in command.params:
        source = SOURCES.get(parameter.name or "")
        if source is not None and type(parameter.type) is click.types.StringParamType:
            parameter.type = KnownName(source)

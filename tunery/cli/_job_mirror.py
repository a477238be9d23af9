"""`tunery job mirror`: a job in TensorBoard, MLflow and W&B."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from tunery.cli import _api
from tunery.local.errors import LocalError

if TYPE_CHECKING:
    from tunery.client import Api

EXPERIMENT: Final = "tunery"
INTERRUPTED: Final = 130  # the exit code of a program that SIGINT ends
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


class Mirror(Protocol):
    """A destination that a job is copied to, such as a TensorBoard folder.

    Call `begin`, then `add` for each step in order, then `end`; `close` in any case. A mirror
    that is written again shows each step once.
    """

    def begin(self, job: Mapping[str, Any]) -> int:
        """Write the parameters of a job. Returns the last step that is there already; 0: none."""
        ...

    def add(self, step: Mapping[str, Any]) -> None:
        """Write the figures of a step, as `Api.metrics` has it."""
        ...

    def end(self, job: Mapping[str, Any]) -> None:
        """Write what became of the job."""
        ...

    def close(self) -> None:
        """Release what is open. What was added is kept."""
        ...

    @property
    def destination(self) -> str:
        """The file, the folder or the address of what was written; known from `begin` on."""
        ...


@click.command("mirror")
@click.argument("job_id")
@click.option("--tensorboard", type=FOLDER, metavar="DIR", help="A folder for TensorBoard.")
@click.option("--mlflow", metavar="URL", help="An MLflow server.")
@click.option(
    "--wandb-offline", type=FOLDER, metavar="DIR", help="A folder for W&B's offline runs."
)
@click.option(
    "--experiment",
    default=EXPERIMENT,
    show_default=True,
    help="The experiment of MLflow, or the project of W&B.",
)
@_api.asking
def mirror(
    api: "Api",
    job_id: str,
    tensorboard: Path | None,
    mlflow: str | None,
    wandb_offline: Path | None,
    experiment: str,
    as_json: bool,
) -> None:
    """Write a job to TensorBoard, MLflow or W&B: parameters, figures of each step, outcome.

    A running job is followed until it ends. The same command again writes no step twice.
    Credentials for MLflow are those of its own client: MLFLOW_TRACKING_TOKEN, or
    MLFLOW_TRACKING_USERNAME and _PASSWORD. --wandb-offline needs W&B's package, and sends nothing.
    """
    mirrors = _mirrors(tensorboard, mlflow, wandb_offline, experiment)
    if not mirrors:
        raise click.UsageError("Name --tensorboard, --mlflow or --wandb-offline.")
    from tunery.mirrors.wandb_runs import RunRefused

    with ExitStack() as stack:
        for target in mirrors.values():
            stack.callback(target.close)
        try:
            _announce(api.job(job_id))
            job, steps = mirror_job(api, job_id, [*mirrors.values()])
        except KeyboardInterrupt:
            text = "The job goes on. The same command again writes what is missing."
            click.echo(text, err=True)
            raise SystemExit(INTERRUPTED) from None
        except RunRefused as error:
            fix = "name another project with --experiment, or see W&B's log in that folder"
            raise LocalError(str(error), fix) from error
        except OSError as error:
            text = f"{error.filename or 'a file'} cannot be written: {error.strerror}"
            raise LocalError(text, "free its disk, or name another folder") from error
    written = {name: target.destination for name, target in mirrors.items()}
    result = {"job": job_id, "status": job["status"], "steps": steps, **written}
    _api.show_one(result, as_json, result.items())


def _announce(job: Mapping[str, Any]) -> None:
    """Say of a job that has not ended that the command continues until then."""
    if job["finished_at"] is None:
        text = f"{job['id']} is {job['status']}: its steps are written until it ends."
        click.echo(text, err=True)


def _mirrors(
    tensorboard: Path | None, mlflow: str | None, wandb_offline: Path | None, experiment: str
) -> dict[str, Mirror]:
    """Open the mirrors requested, by option name. Raises LocalError without W&B's package."""
    mirrors: dict[str, Mirror] = {}
    if tensorboard is not None:
        from tunery.mirrors.event_files import EventFile

        mirrors["tensorboard"] = EventFile(tensorboard)
    if mlflow is not None:
        from tunery.cli._mlflow import MlflowServer
        from tunery.mirrors.mlflow_runs import MlflowRun

        mirrors["mlflow"] = MlflowRun(MlflowServer(mlflow, "--mlflow"), experiment)
    if wandb_offline is not None:
        from tunery.mirrors.wandb_runs import OfflineRun, is_installed

        if not is_installed():
            fix = "install tunery's extra `mirrors`, or `pip install wandb` beside tunery"
            raise LocalError("--wandb-offline needs W&B's package, which is not installed", fix)
        mirrors["wandb"] = OfflineRun(wandb_offline, experiment)
    return mirrors


def mirror_job(api: "Api", job_id: str, mirrors: Sequence[Mirror]) -> tuple[Any, int]:
    """The job when it has ended, and how many steps it has. The steps of a running job are written
    as they come.

    A lost attempt continues from a checkpoint, and its steps after that come again with the same
    figures: the first of them are written. Raises LocalError when the figures of its steps are not
    kept any more, ApiRefusal, Unreachable.
    """
    last_steps: list[int] = []
    last = 0
    step: Any  # figures, as `Api.metrics` has them
    for step in api.follow(job_id, "metrics"):
        if not last_steps:
            job = api.job(job_id)
            last_steps = [mirror.begin(job) for mirror in mirrors]
        number = int(step["step"])
        last = max(last, number)
        for index, mirror in enumerate(mirrors):
            if number > last_steps[index]:
                mirror.add(step)
                last_steps[index] = number
    ended: Any = api.job(job_id)
    if not last_steps:
        if ended["trained_tokens"]:
            text = f"the figures of the steps of {job_id} are not kept any more"
            fix = f"`tunery job show {job_id} --json` names its result file, which has the losses"
            raise LocalError(text, fix)
        for mirror in mirrors:
            mirror.begin(ended)
    for mirror in mirrors:
        mirror.end(ended)
    return ended, last

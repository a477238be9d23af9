"""`tunery job mirror`: a job in TensorBoard, MLflow and W&B."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tunery.cli import _api, _options
from tunery.local.errors import LocalError
from tunery.local.paths import DataDir

if TYPE_CHECKING:
    from tunery.cli._job_copying import Mirror

EXPERIMENT: Final = "tunery"
INTERRUPTED: Final = 130  # the exit code of a program that SIGINT ends
FOLDER: Final = click.Path(path_type=Path, file_okay=False)


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
@_options.data_dir
@_options.as_json
def mirror(
    job_id: str,
    tensorboard: Path | None,
    mlflow: str | None,
    wandb_offline: Path | None,
    experiment: str,
    folders: DataDir,
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
    from tunery.cli._job_copying import mirror_job
    from tunery.mirrors.wandb_runs import RunRefused

    with ExitStack() as stack, _api.connect(folders) as api:
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
) -> dict[str, "Mirror"]:
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

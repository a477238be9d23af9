"""The programs that `make test-clients` runs, each with an environment of its own."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.environments import node_packages, pinned_environment

HERE: Final = Path(__file__).parent
PINS: Final = HERE / "requirements"
NODE: Final = "openai_node"
LLAMA_CPP: Final = "llama_cpp"  # runs an adapter; it is no client
LM_EVAL: Final = "lm_eval"  # scores base and adapter as our gate does
MLFLOW: Final = "mlflow"  # a registry to which versions are exported
TENSORBOARD: Final = "tensorboard"
WANDB: Final = "wandb"
#: program → option of `tunery job mirror` that writes what it reads
MIRRORS: Final[Mapping[str, str]] = {
    MLFLOW: "--mlflow",
    TENSORBOARD: "--tensorboard",
    WANDB: "--wandb-offline",
}
TOOLS: Final = "tiny-tools"  # a base model whose template shows tools and calls of them
#: clients that ask a model in their default modes, and train none
ASKING: Final = ("instructor_calls", "langchain", "openai_agents", "pydantic_ai")
#: client → what of it is left out, and why
LEFT_OUT: Final[Mapping[str, str | None]] = {
    "dspy": None,
    "instructor": None,
    "litellm": None,
    "llama_index": "its check of rows, which downloads",
    "openai_node": None,
    WANDB: "its server, so login and log_datasets: there is no account",
}


class NoClient(Exception):
    """A client that cannot be had on this machine."""


def command_of(client: str, folder: Path, script: str | None = None) -> tuple[str, ...]:
    """What runs the script of a client or of llama.cpp, without arguments. Raises NoClient.

    folder: an empty one, from which the script runs. script: another one of the same program
    """
    try:
        if client == NODE:
            return _node_command(folder)
        programs = pinned_environment(PINS / f"{client.removesuffix('_calls')}.txt")
    except (OSError, subprocess.SubprocessError) as error:
        raise NoClient(f"its packages cannot be installed: {error}") from error
    return (str(programs / "python"), str(HERE / f"{script or client}_script.py"))


def _node_command(folder: Path) -> tuple[str, ...]:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoClient(f"there is no program {program} (apt-get install nodejs npm)")
    packages = node_packages(PINS / f"{NODE}.json")
    if not (folder / packages.name).exists():
        (folder / packages.name).symlink_to(packages)
    script = shutil.copy(HERE / f"{NODE}.mjs", folder)
    return ("node", str(script))

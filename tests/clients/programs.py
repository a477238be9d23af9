"""The programs that `make test-clients` runs, each with an environment of its own."""

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.environments import node_packages, pinned_environment

HERE: Final = Path(__file__).parent
PINS: Final = HERE / "requirements"
NODE: Final = "openai_node"
PYDANTIC_AI: Final = "pydantic_ai"
OPENAI: Final = "openai"  # in our own environment
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
ASKING: Final = ("langchain", "openai_agents")
#: client → what of it is left out, and why
LEFT_OUT: Final[Mapping[str, str | None]] = {
    "dspy": None,
    "instructor": None,
    "litellm": None,
    "llama_index": "its check of rows, which downloads",
    "openai_node": None,
    WANDB: "its server, so login and log_datasets: there is no account",
}


#: client → its section on the page "Your model in …"
ON_PAGE: Final[Mapping[str, str]] = {
    OPENAI: "openai-python",
    NODE: "openai-node",
    "langchain": "LangChain",
    "llama_index": "LlamaIndex",
    "instructor": "instructor",
    PYDANTIC_AI: "pydantic-ai",
    "openai_agents": "OpenAI Agents SDK",
    "litellm": "litellm",
    "dspy": "DSPy",
}


class NoClient(Exception):
    """A client that cannot be had on this machine."""


def command_of(client: str, folder: Path, script: str | None = None) -> tuple[str, ...]:
    """Command that runs the script of a client or of llama.cpp. Raises NoClient.

    folder: an empty one, from which the script runs. script: another one of the same program
    """
    try:
        if client == NODE:
            return _node_command(folder, script or NODE)
        if client == OPENAI:
            return (sys.executable, str(HERE / f"{script}_script.py"))
        programs = pinned_environment(PINS / f"{client}.txt")
    except (OSError, subprocess.SubprocessError) as error:
        raise NoClient(f"its packages cannot be installed: {error}") from error
    return (str(programs / "python"), str(HERE / f"{script or client}_script.py"))


def _node_command(folder: Path, script: str) -> tuple[str, ...]:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            raise NoClient(f"there is no program {program} (apt-get install nodejs npm)")
    packages = node_packages(PINS / f"{NODE}.json")
    if not (folder / packages.name).exists():
        (folder / packages.name).symlink_to(packages)
    if not (copied := folder / f"{script}.mjs").exists():
        shutil.copy(HERE / copied.name, folder)
    return ("node", str(copied))

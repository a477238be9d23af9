"""Containerfiles as instructions, and the rules that ours keep."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

JOINED: Final = re.compile(r"\\\n\s*")
PINNED: Final = re.compile(r":(\d+\.\d+\.\d+[\w.-]*)$|@sha256:[0-9a-f]{64}$")
VERSIONED: Final = re.compile(r"pip install (?:--\S+ )*(\S+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction with its argument; lines that a backslash joins are one."""

    name: str
    argument: str


def instructions(text: str) -> list[Instruction]:
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    joined = JOINED.sub("", "\n".join(lines)).splitlines()
    parts = [line.partition(" ") for line in joined]
    return [Instruction(name, argument.strip()) for name, _, argument in parts]


def stages(every: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions by stage, each of which begins with FROM."""
    starts = [number for number, step in enumerate(every) if step.name == "FROM"]
    return [
        list(every[start:end]) for start, end in zip(starts, [*starts[1:], len(every)], strict=True)
    ]


def problems(text: str) -> Iterator[str]:
    """Violations of our rules."""
    every = instructions(text)
    arguments = dict(step.argument.split("=", 1) for step in every if step.name == "ARG")
    parts = stages(every)
    if len(parts) < 2:
        yield "it has one stage: tools of the build are left in the image"
    for part in parts:
        base = part[0].argument.split(" ")[0]
        for name, value in arguments.items():
            base = base.replace(f"${{{name}}}", value)
        if PINNED.search(base) is None:
            yield f"FROM {base} names no exact version"
    if [step.name for step in every if step.name == "ADD"]:
        yield "ADD fetches and unpacks: use COPY"
    yield from problems_of_last(parts[-1])
    for step in every:
        if step.name == "RUN":
            yield from problems_of_run(step.argument)


def problems_of_last(stage: Sequence[Instruction]) -> Iterator[str]:
    """Problems of the last stage, which becomes the image."""
    names = [step.name for step in stage]
    users = [step.argument for step in stage if step.name == "USER"]
    if not users or not re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]):
        yield "USER is not a number that Kubernetes can see is not root"
    elif "RUN" in names[names.index("USER") :]:
        yield "RUN after USER"
    if "ENTRYPOINT" not in names or "[" not in dict_of(stage)["ENTRYPOINT"]:
        yield "ENTRYPOINT is no list: signals would end in a shell"


def problems_of_run(command: str) -> Iterator[str]:
    for package in VERSIONED.findall(command):
        if "uv pip" not in command and "==" not in package:
            yield f"{package} has no version"
    if "apt-get install" in command:
        if "--no-install-recommends" not in command:
            yield "apt-get install with what is only recommended"
        if "rm -rf /var/lib/apt/lists" not in command:
            yield "lists of apt-get stay in the image"
    if "uv pip install" in command and "constraints requirements.lock" not in command:
        yield "packages that are not those of requirements.lock"
    if re.search(r"\b(curl|wget|sudo)\b", command):
        yield "something is fetched that no hash is checked of"


def dict_of(stage: Sequence[Instruction]) -> dict[str, str]:
    return {step.name: step.argument for step in stage}


def copied(text: str) -> list[str]:
    """Paths of the repository that are copied into the image."""
    return [
        path
        for step in instructions(text)
        if step.name == "COPY" and not step.argument.startswith("--from")
        for path in step.argument.split()[:-1]
    ]


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")

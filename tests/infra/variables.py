"""The variables that processes read, as their settings declare them, and the services there are."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

import pytest
from pydantic import AliasChoices
from pydantic_settings import BaseSettings

from tunery.local.stack import AGENT, KNOWN
from tunery.platform.settings import RuntimeSettings, load

ROOT: Final = Path(__file__).resolve().parents[2]
INFRA: Final = ROOT / "infra"
#: what runs beside the nodes, the exporter included
CONTROL_PLANE: Final = tuple(name for name in KNOWN if name != AGENT)
NODE: Final = "gpu-07"  # of examples
CLUSTER_AGENT: Final = "k8s"  # agent of a cluster, of examples
CLUSTER: Final = "cluster"  # service whose leases are pods; no part of a stack on one machine
VARIABLE: Final = re.compile(r"\bTUNERY_[A-Z0-9_]+\b")
#: read elsewhere than in settings
OF_FOLDERS: Final = frozenset({"TUNERY_CONFINE_READ", "TUNERY_CACHE_DIR"})


def own_settings(service: str) -> list[type[BaseSettings]]:
    """Classes of a service's own settings; most have one, some have none."""
    if not (ROOT / "services" / service / "settings.py").is_file():
        return []
    module = import_module(f"services.{service}.settings")
    return [
        declared
        for declared in vars(module).values()
        if isinstance(declared, type)
        and issubclass(declared, BaseSettings)
        and declared.__module__ == module.__name__
    ]


def variables_of(settings: type[BaseSettings]) -> Iterator[str]:
    prefix = settings.model_config.get("env_prefix", "")
    for name, field in settings.model_fields.items():
        alias = field.validation_alias
        yield str(alias.choices[0]) if isinstance(alias, AliasChoices) else prefix + name.upper()


@cache
def known_variables() -> frozenset[str]:
    classes: list[type[BaseSettings]] = [RuntimeSettings]
    classes += [own for name in (*KNOWN, CLUSTER) for own in own_settings(name)]
    return frozenset(name for settings in classes for name in variables_of(settings)) | OF_FOLDERS


def unknown_in(text: str) -> set[str]:
    """Variables of ours that a text names and no process reads."""
    return {name for name in VARIABLE.findall(text) if name not in known_variables()}


def load_as(
    service: str, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> RuntimeSettings:
    """Settings that a service reads from an environment. Raises SettingsError as it would."""
    for name in known_variables():
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for own in own_settings(service):
        load(own)
    return load(RuntimeSettings)


def environment(text: str) -> dict[str, str]:
    """Parse an env file as systemd, containers and Kubernetes do."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)

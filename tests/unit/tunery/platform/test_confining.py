"""Missing confinement is reported, and refused where the operator requires it."""

import subprocess
from collections.abc import Mapping
from typing import Final

import pytest

from tunery.local import doctor
from tunery.platform import confining
from tunery.platform.memory_servers import memory_servers
from tunery.platform.ports import Runtime
from tunery.platform.settings import SettingsError

ALL: Final[Mapping[str, str]] = {}
NO_NAMESPACES: Final = {"namespaces": "Operation not permitted"}
NO_LANDLOCK: Final = {"landlock": "Function not implemented"}


def machine_without(missing: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (confining, doctor):
        monkeypatch.setattr(module, "missing_walls", lambda: missing)


async def runtime(mode: str) -> Runtime:
    there = (await memory_servers()).runtime("trainer")
    object.__setattr__(there.settings, "confine", mode)
    return there


@pytest.mark.parametrize("mode", ["require", "prefer"])
async def test_security_h1_a_machine_without_landlock_is_refused_unless_the_operator_bears_it(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine_without(NO_LANDLOCK, monkeypatch)
    there = await runtime(mode)
    if mode == "require":
        with pytest.raises(SettingsError, match="TUNERY_CONFINE=prefer"):
            await confining.confinement_of(there)
    else:
        assert (await confining.confinement_of(there)).mode == "prefer"
        assert there.health.unconfined == NO_LANDLOCK


async def test_refused_namespaces_are_reported_and_the_other_walls_suffice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine_without(NO_NAMESPACES, monkeypatch)
    there = await runtime("require")
    assert (await confining.confinement_of(there)).mode == "require"
    assert there.health.unconfined == NO_NAMESPACES
    assert doctor.confinement().is_well


async def test_confinement_that_is_off_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_without(ALL, monkeypatch)
    there = await runtime("off")
    assert (await confining.confinement_of(there)).mode == "off"
    assert set(there.health.unconfined) == {"landlock", "seccomp"}


def test_the_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine_without(ALL, monkeypatch)
    assert doctor.confinement().is_well
    machine_without(NO_LANDLOCK, monkeypatch)
    diagnosis = doctor.confinement()
    assert "no landlock" in diagnosis.detail
    assert "TUNERY_CONFINE=prefer" in diagnosis.fix

    def fail() -> Mapping[str, str]:
        raise subprocess.TimeoutExpired("python", 30)

    monkeypatch.setattr(doctor, "missing_walls", fail)
    assert not doctor.confinement().is_well

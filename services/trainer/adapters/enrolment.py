"""Gets keys and settings of a node for its token, before the agent starts, and keeps them.

The private key is written before the token is sent. So an agent that dies before it has the answer,
or has written it, asks again with the same key, and gets the same keys.
"""

import hashlib
import ipaddress
import os
import secrets
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace
from pydantic_settings import BaseSettings, SettingsConfigDict

from services.trainer.settings import TrainerSettings
from tunery.platform.node_settings import halves_of, open_settings
from tunery.platform.process import EXIT_BAD_SETTINGS
from tunery.platform.seal.abstract import SealBroken
from tunery.platform.seal.boxes import KEY_BYTES, open_box, public_key_of
from tunery.platform.settings import SettingsError, load

KEPT: Final = "enrolment.json"  # in the folder of the node
COMMAND_KEYS: Final = "TUNERY_COMMAND_KEYS"
TIMEOUT_S: Final = 30.0
TRIES_MAX: Final = 10
PAUSE_S: Final = 3.0  # between two tries
TEXT_MAX: Final = 500  # characters of an answer that is no error of the API


class Enrolment(Struct, frozen=True, forbid_unknown_fields=True):
    """Enrolment of a node as its file stores it, readable by its owner alone."""

    token_sha256: str  # hash of the token that was used
    private_key: bytes  # key that opens the sealed answer
    # keys in the format of TUNERY_COMMAND_KEYS; None: the gateway has not answered yet
    command_keys: str | None = None
    settings: dict[str, str] = {}  # further environment variables that the operator gave the node


class _Keys(Struct):
    sealed_keys: str = ""
    sealed_settings: str | None = None
    invitation: str = ""  # name that the settings are sealed for; empty: the node's own


class _Folder(BaseSettings):
    """Settings that a node needs before it knows its servers."""

    model_config = SettingsConfigDict(env_prefix="TUNERY_", extra="ignore")

    data_dir: Path


def enrol_or_exit() -> None:
    """Set variables that are not set where the node was, or can be, enrolled."""
    if os.environ.get(COMMAND_KEYS):
        return
    try:
        settings = load(TrainerSettings)
        folder = settings.work_dir or load(_Folder).data_dir / "nodes" / settings.id
        variables = enrolled_variables(settings, folder)
    except SettingsError as error:
        sys.stderr.write(f"trainer cannot start:\n{error}\n")
        sys.exit(EXIT_BAD_SETTINGS)
    for name, value in variables.items():
        if not os.environ.get(name):
            os.environ[name] = value


def enrolled_variables(
    settings: TrainerSettings,
    folder: Path,
    *,
    transport: httpx.BaseTransport | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """The variables that this node has kept or gets for its token; none: it has neither.

    A token that is not the one of the kept keys is used: they may be withdrawn.
    Raises SettingsError: the token is refused, or there is no answer.
    """
    kept, token = _read(folder / KEPT), _token(settings)
    if token is None:
        return {} if kept is None else _variables(kept)
    token_sha256 = hashlib.sha256(token.encode()).hexdigest()
    if kept is None or kept.token_sha256 != token_sha256:
        kept = Enrolment(token_sha256, secrets.token_bytes(KEY_BYTES))
        _write(folder / KEPT, kept)
    if kept.command_keys is None:
        if settings.gateway_url is None:
            raise SettingsError(
                "TUNERY_NODE_TOKEN needs TUNERY_NODE_GATEWAY_URL: the address of the API, "
                "like https://tunery.example.com"
            )
        _check_private(settings.gateway_url, settings.gateway_plain)
        shown, half = halves_of(token)
        with httpx.Client(timeout=TIMEOUT_S, transport=transport) as client:
            answer = _ask(client, settings.gateway_url, settings.id, shown, kept, pause)
        kept = _opened(kept, answer, settings, half)
        _write(folder / KEPT, kept)
    return _variables(kept)


def _variables(kept: Enrolment) -> dict[str, str]:
    if kept.command_keys is None:
        return {}
    return {**kept.settings, COMMAND_KEYS: kept.command_keys}


def _opened(kept: Enrolment, answer: _Keys, settings: TrainerSettings, half: str) -> Enrolment:
    """Decrypt an answer into the enrolment. half: second one of the token. Raises SettingsError."""
    try:
        keys = open_box(kept.private_key, b64decode(answer.sealed_keys)).decode()
    except (SealBroken, ValueError) as error:  # what is no Base64 is a ValueError
        raise SettingsError(
            f"TUNERY_NODE_GATEWAY_URL: {settings.gateway_url} has sent keys that are not "
            "sealed to this node; check that it is the address of the API"
        ) from error
    if answer.sealed_settings is None:
        return replace(kept, command_keys=keys)
    try:
        variables = open_settings(answer.invitation or settings.id, half, answer.sealed_settings)
    except SealBroken as error:
        raise SettingsError(
            "TUNERY_NODE_TOKEN: its part behind the dot does not open the settings that the "
            "operator has sealed for this node; copy the token as a whole, or make another"
        ) from error
    return replace(kept, command_keys=keys, settings=variables)


def _check_private(url: str, is_plain_allowed: bool) -> None:
    """Raises SettingsError for an address to which a token would go unencrypted."""
    parts = urlsplit(url)
    if parts.scheme == "https" or is_plain_allowed or _is_this_machine(parts.hostname or ""):
        return
    raise SettingsError(
        f"TUNERY_NODE_GATEWAY_URL: {url} is not encrypted, and whoever sees the token on the way "
        "gets the keys of this node; use https://, or set TUNERY_NODE_GATEWAY_PLAIN=true where "
        "you trust the network"
    )


def _is_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ask(
    client: httpx.Client,
    url: str,
    node_id: str,
    token: str,
    kept: Enrolment,
    pause: Callable[[float], None],
) -> _Keys:
    """Send the enrolment request and return the sealed keys, with retries. Raises SettingsError."""
    base = url.rstrip("/").removesuffix("/v1")
    address = f"{base}/v1/nodes/{quote(node_id, safe='')}/enrol"
    body = {"token": token, "public_key": public_key_of(kept.private_key).hex()}
    problem = ""
    for number in range(TRIES_MAX):
        if number:
            pause(PAUSE_S)
        try:
            answer = client.post(address, json=body)
        except httpx.HTTPError as error:
            problem = f"{base} does not answer: {error}"
            continue
        if answer.is_success:
            # no keys where it is no answer of our API
            try:
                return msgspec.json.decode(answer.content, type=_Keys)
            except msgspec.MsgspecError:
                return _Keys()
        problem = f"{base} answers {answer.status_code}: {_message(answer)}"
        if answer.status_code < 500 and answer.status_code != 429:
            break
    raise SettingsError(f"this node ({node_id}) was not enrolled: {problem}")


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return answer.text[:TEXT_MAX]


def _token(settings: TrainerSettings) -> str | None:
    """The token, if the node has one. Raises SettingsError."""
    if settings.token is not None or settings.token_file is None:
        return settings.token
    try:
        return settings.token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(
            f"TUNERY_NODE_TOKEN_FILE: {settings.token_file} cannot be read: {error}"
        ) from None


def _read(path: Path) -> Enrolment | None:
    """Read the node's enrolment; None: it has none yet. Raises SettingsError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Enrolment)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"{path} cannot be read: {error}; remove it and enrol the node again"
        ) from None


def _write(path: Path, kept: Enrolment) -> None:
    """Replace the file atomically, and sync it to disk. Raises SettingsError."""
    fresh = path.with_suffix(".new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as target:
            target.write(msgspec.json.encode(kept))
            target.flush()
            os.fsync(target.fileno())
        fresh.replace(path)
    except OSError as error:
        raise SettingsError(f"{path} cannot be written: {error.strerror}") from error

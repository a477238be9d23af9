"""Gets the keys of a node for its token, before the agent starts, and keeps them in its folder.

The private key is written before the token is sent. So an agent that dies before it has the answer,
or has written it, asks again with the same key, and gets the same keys.
"""

import hashlib
import os
import secrets
import sys
import time
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from services.trainer.settings import TrainerSettings
from tunery.runtime.hosts.process import EXIT_BAD_SETTINGS
from tunery.runtime.seal.abstract import SealBroken
from tunery.runtime.seal.boxes import KEY_BYTES, open_box, public_key_of
from tunery.runtime.settings import RuntimeSettings, SettingsError, load

KEPT: Final = "enrolment.json"  # in the folder of the node
COMMAND_KEYS: Final = "TUNERY_COMMAND_KEYS"
TIMEOUT_S: Final = 30.0
TRIES_MAX: Final = 10
PAUSE_S: Final = 3.0  # between two tries
TEXT_MAX: Final = 500  # characters of an answer that is no error of the API


class Enrolment(Struct, frozen=True, forbid_unknown_fields=True):
    """What a node keeps of its enrolment, readable by its owner alone.

    token_sha256: of the token that was used.
    private_key: what its keys are sealed to.
    command_keys: in the form of TUNERY_COMMAND_KEYS; None: the answer is still to come.
    """

    token_sha256: str
    private_key: bytes
    command_keys: str | None = None


class _Keys(Struct):
    sealed_keys: str


def enrol_or_exit() -> None:
    """Set TUNERY_COMMAND_KEYS where it is not set and the node was, or can be, enrolled."""
    if os.environ.get(COMMAND_KEYS):
        return
    try:
        settings, runtime = load(TrainerSettings), load(RuntimeSettings)
        folder = settings.work_dir or runtime.data_dir / "nodes" / settings.id
        keys = command_keys_of(settings, folder)
    except SettingsError as error:
        sys.stderr.write(f"trainer cannot start:\n{error}\n")
        sys.exit(EXIT_BAD_SETTINGS)
    if keys is not None:
        os.environ[COMMAND_KEYS] = keys


def command_keys_of(
    settings: TrainerSettings,
    folder: Path,
    *,
    transport: httpx.BaseTransport | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> str | None:
    """The keys that this node has kept or gets for its token; None: it has neither.

    A token that is not the one of the kept keys is used: they may be withdrawn.
    Raises SettingsError: the token is refused, or nobody answers.
    """
    kept, token = _read(folder / KEPT), _token(settings)
    if token is None:
        return None if kept is None else kept.command_keys
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
        with httpx.Client(timeout=TIMEOUT_S, transport=transport) as client:
            box = _ask(client, settings.gateway_url, settings.id, token, kept, pause)
        try:
            keys = open_box(kept.private_key, b64decode(box)).decode()
        except (SealBroken, ValueError) as error:  # what is no Base64 is a ValueError
            raise SettingsError(
                f"TUNERY_NODE_GATEWAY_URL: {settings.gateway_url} has sent keys that are not "
                "sealed to this node; check that it is the address of the API"
            ) from error
        kept = replace(kept, command_keys=keys)
        _write(folder / KEPT, kept)
    return kept.command_keys


def _ask(
    client: httpx.Client,
    url: str,
    node_id: str,
    token: str,
    kept: Enrolment,
    pause: Callable[[float], None],
) -> str:
    """The sealed keys, in Base64. Raises SettingsError."""
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
            return _sealed(answer.content)
        problem = f"{base} answers {answer.status_code}: {_message(answer)}"
        if answer.status_code < 500 and answer.status_code != 429:
            break
    raise SettingsError(f"this node ({node_id}) was not enrolled: {problem}")


def _sealed(content: bytes) -> str:
    """Of an answer; empty where it is none of the API."""
    try:
        return msgspec.json.decode(content, type=_Keys).sealed_keys
    except msgspec.MsgspecError:
        return ""


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
    """What was kept. Raises SettingsError."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Enrolment)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise SettingsError(
            f"{path} cannot be read: {error}; remove it and enrol the node again"
        ) from None


def _write(path: Path, kept: Enrolment) -> None:
    """Replace the file as a whole, and have it on the disk. Raises SettingsError."""
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

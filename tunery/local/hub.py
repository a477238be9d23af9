"""Downloads base models by name and revision from a hub that speaks Hugging Face's protocol.

Only configuration, tokenizer, template and safetensors are fetched, each checked by the hash that
the hub has for it: SHA-256 of large files, Git's object id of the others.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx

from tunery.local.errors import LocalError
from tunery.platform.blobs.base_files import INDEX, NAMES, WEIGHTS

ENDPOINT: Final = "https://huggingface.co"
REPOSITORY: Final = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
COMMIT: Final = re.compile(r"[0-9a-f]{40}")
TIMEOUT_S: Final = 60.0
CHUNK_BYTES: Final = 1024 * 1024
Progress = Callable[[int], None]


class HubFile(NamedTuple):
    """A file of a repository."""

    name: str
    bytes: int  # 0: the hub does not say
    sha256: str | None  # hash of a large file
    git_id: str | None  # Git's id of any other file


class HubModel(NamedTuple):
    """A base model at one commit of a hub, with the files of it that are read."""

    name: str
    commit: str
    licence: str
    files: tuple[HubFile, ...]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class Hub:
    """A hub, by default that of `HF_ENDPOINT`; `HF_TOKEN` opens models that ask for consent."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        env = os.environ if environ is None else environ
        self.endpoint = (env.get("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        token = env.get("HF_TOKEN")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(headers=headers, timeout=TIMEOUT_S, follow_redirects=True)

    def model(self, name: str, revision: str = "main") -> HubModel:
        """Return a model of the hub at a branch, tag or commit. Raises LocalError."""
        if not REPOSITORY.fullmatch(name):
            raise LocalError(f"{name!r} is no name of a model", "write it like Qwen/Qwen2.5-0.5B")
        path = f"/api/models/{name}/revision/{quote(revision, safe='')}"
        answer = self._get(path, name, revision, params={"blobs": "true"})
        try:
            body = answer.json()
            commit, files = str(body["sha"]), [_file(item) for item in body["siblings"]]
        except (ValueError, KeyError, TypeError) as error:
            fix = "set HF_ENDPOINT to a hub that speaks Hugging Face's protocol"
            raise LocalError(f"{self.endpoint} does not answer as a hub does", fix) from error
        read = tuple(read_files(files))
        if not any(file.name.endswith(".safetensors") for file in read):
            fix = "choose a model with safetensors, or convert it and add its folder"
            raise LocalError(f"{name} has no *.safetensors", fix)
        return HubModel(name, commit, _licence(body), read)

    def download(self, model: HubModel, folder: Path, progress: Progress) -> None:
        """Fetch the files of a model into a folder; those that are there are checked and kept.

        progress: called with the bytes that came since the last call. Raises LocalError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for file in model.files:
            target = folder / file.name
            if target.is_file() and not _fault(target, file):
                progress(file.bytes)
                continue
            partial = target.with_name(f"{target.name}.part")
            self._fetch(model, file, partial, progress)
            if fault := _fault(partial, file):
                partial.unlink()
                raise LocalError(f"{file.name} of {model.name} {fault}", "download it again")
            partial.replace(target)

    def _fetch(self, model: HubModel, file: HubFile, partial: Path, progress: Progress) -> None:
        url = f"{self.endpoint}/{model.name}/resolve/{model.commit}/{quote(file.name)}"
        try:
            with self._http.stream("GET", url) as answer:
                answer.raise_for_status()
                with partial.open("wb") as target:
                    for chunk in answer.iter_bytes(CHUNK_BYTES):
                        target.write(chunk)
                        progress(len(chunk))
        except httpx.HTTPError as error:
            partial.unlink(missing_ok=True)
            fix = "run it again: files that are complete are kept"
            raise LocalError(f"{url} could not be downloaded: {error}", fix) from error

    def _get(self, path: str, name: str, revision: str, **arguments: Any) -> httpx.Response:
        try:
            answer = self._http.get(self.endpoint + path, **arguments)
        except httpx.HTTPError as error:
            fix = "set HF_ENDPOINT to a hub that this machine reaches, or add a folder"
            raise LocalError(f"{self.endpoint} does not answer: {error}", fix) from error
        if answer.status_code in (401, 403):
            fix = "ask for access on its page, and set HF_TOKEN"
            raise LocalError(f"{self.endpoint} does not give {name} to everybody", fix)
        if answer.status_code == 404:
            fix = "check the name, and the branch, tag or commit after @"
            raise LocalError(f"{self.endpoint} has no {name}@{revision}", fix)
        if not answer.is_success:
            raise LocalError(f"{answer.url} answered {answer.status_code}", "try again later")
        return answer


def split_name(name: str) -> tuple[str, str]:
    """`Qwen/Qwen2.5-0.5B@v1` as name and revision; without one the branch `main`."""
    repository, mark, revision = name.partition("@")
    return repository, revision if mark else "main"


def _file(item: Mapping[str, Any]) -> HubFile:
    lfs = item.get("lfs") or {}
    size = lfs.get("size") or item.get("size") or 0
    return HubFile(str(item["rfilename"]), int(size), lfs.get("sha256"), item.get("blobId"))


def read_files(files: list[HubFile]) -> Iterator[HubFile]:
    """Yield the files that a base model is read from, chosen as `base_files` does in a folder."""
    names = {file.name for file in files}
    for file in files:
        is_weights = fnmatch(file.name, "*.safetensors") and "/" not in file.name
        if WEIGHTS in names:
            is_weights = file.name == WEIGHTS
        if is_weights or (file.name in NAMES and not (file.name == INDEX and WEIGHTS in names)):
            yield file


def _licence(body: Mapping[str, Any]) -> str:
    """The licence that the page of a model names; "unknown" without one."""
    named = (body.get("cardData") or {}).get("license")
    tags = (tag.partition(":") for tag in body.get("tags") or [] if isinstance(tag, str))
    tagged = next((value for key, _, value in tags if key == "license"), None)
    return named if isinstance(named, str) else tagged or "unknown"


def _fault(path: Path, file: HubFile) -> str | None:
    """Why these are not the bytes of the hub; None: they are."""
    size = path.stat().st_size
    if file.bytes and size != file.bytes:
        return f"came with {size:,} bytes, not {file.bytes:,}"
    digests = [(file.sha256, hashlib.sha256())]
    if file.sha256 is None and file.git_id is not None:
        git = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        digests = [(file.git_id, git)]
    for expected, digest in digests:
        with path.open("rb") as stream:
            while chunk := stream.read(CHUNK_BYTES):
                digest.update(chunk)
        if expected is not None and digest.hexdigest() != expected:
            return "came with the wrong bytes"
    return None

"""An independent account of files, uploads, pins and preparations, entered decision by decision.

Written from the invariants of ingest's README; nothing here asks its decider.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from schemas import dataset as files
from schemas.dataset import PinTerms, Prepared
from schemas.envelope import Rejected, Repeated, Tick
from schemas.erasure import EraseFiles, FilesErased
from schemas.storage import UploadTerms
from schemas.units import HOUR_MS, Ms
from simulator.artifacts.hosts import version_of

UPLOAD_MS: Final = HOUR_MS
NOT_COUNTED: Final = "base-model"


@dataclass
class KeptFile:
    """A file that is there. `result`: of its check, None: there is none yet."""

    purpose: str
    sha256: str
    blob: str
    size: int
    expires_at: Ms | None
    result: bool | None = None
    report: str | None = None


@dataclass
class OpenUpload:
    """An upload that takes parts, by their bytes."""

    terms: UploadTerms
    expires_at: Ms
    parts: dict[str, int] = field(default_factory=dict)


@dataclass
class Cache:
    """A prepared cache of some content. `prepared`: None while the preparation is under way."""

    sources: frozenset[str]
    version: str
    prepared: Prepared | None = None


@dataclass
class FilesOfTenant:
    """Known files of one tenant.

    pins: pins of jobs, with their needs
    waiting: pins without an answer
    holds: files of models, by the job that made the model
    numbers: versions given so far, by the key of a name
    """

    files: dict[str, KeptFile] = field(default_factory=dict)
    uploads: dict[str, OpenUpload] = field(default_factory=dict)
    pins: dict[str, PinTerms] = field(default_factory=dict)
    waiting: set[str] = field(default_factory=set)
    holds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    numbers: Counter[str] = field(default_factory=Counter)
    caches: dict[str, Cache] = field(default_factory=dict)
    erased: bool = False

    def is_needed(self, file_id: str) -> bool:
        """True if a job pins the file or a model was trained on it."""
        users = (*(terms.files for terms in self.pins.values()), *self.holds.values())
        return any(file_id in used for used in users)

    def used_bytes(self) -> int:
        kept = sum(file.size for file in self.files.values() if file.purpose != NOT_COUNTED)
        uploads = (u.terms for u in self.uploads.values() if u.terms.file.purpose != NOT_COUNTED)
        return kept + sum(terms.bytes for terms in uploads)

    def needed_blobs(self) -> set[str]:
        """Objects that files and caches of these need; parts are named by their upload."""
        caches = (cache.prepared for cache in self.caches.values() if cache.prepared is not None)
        return {
            *(file.blob for file in self.files.values()),
            *(file.report for file in self.files.values() if file.report is not None),
            *(blob for prepared in caches for blob in prepared.blobs),
        }

    def cache_of(self, terms: PinTerms) -> str:
        """The version of the cache that a pin waits for."""
        sources = tuple(self.files[name].sha256 for name in terms.files)
        return version_of(sources, terms.spec, tuple(m.weight_ppm for m in terms.mixture))


def _does_not_fit(book: FilesOfTenant, quota: Any, size: int | None) -> bool:
    if quota is None:
        return False
    full = len(book.files) >= quota.files
    return full or (size is not None and book.used_bytes() + size > quota.bytes)


def _cannot_register(book: FilesOfTenant, c: files.RegisterFile) -> bool:
    return c.file_id in book.files or _does_not_fit(book, c.quota, c.content.bytes)


def _cannot_create(book: FilesOfTenant, c: files.CreateUpload) -> bool:
    many = c.quota is not None and len(book.uploads) >= c.quota.uploads
    return c.upload_id in book.uploads or many or _does_not_fit(book, c.quota, c.terms.bytes)


def _cannot_add(book: FilesOfTenant, c: files.AddPart) -> bool:
    upload = book.uploads.get(c.upload_id)
    if upload is None or c.part.part_id in upload.parts:
        return True
    declared, size = upload.terms.bytes, c.part.bytes
    return size > declared or sum(upload.parts.values()) + size > 2 * declared


def _cannot_complete(book: FilesOfTenant, c: files.CompleteUpload) -> bool:
    upload = book.uploads.get(c.upload_id)
    if upload is None or _does_not_fit(book, c.quota, None):
        return True
    if len({*c.parts}) < len(c.parts) or not {*c.parts} <= {*upload.parts}:
        return True
    sizes = {c.content.bytes, upload.terms.bytes, sum(upload.parts[name] for name in c.parts)}
    return len(sizes) > 1


def _cannot_delete(book: FilesOfTenant, c: files.DeleteFile) -> bool:
    return c.file_id not in book.files or book.is_needed(c.file_id)


#: Whether a request is refused; requests of the second table are not refused after an erasure.
REFUSED: Final[Mapping[type, Callable[[FilesOfTenant, Any], bool]]] = {
    files.RegisterFile: _cannot_register,
    files.CreateUpload: _cannot_create,
    files.AddPart: _cannot_add,
    files.CompleteUpload: _cannot_complete,
    files.DeleteFile: _cannot_delete,
    files.CancelUpload: lambda book, c: c.upload_id not in book.uploads,
}
STORING: Final = (files.RegisterFile, files.CreateUpload, files.AddPart, files.CompleteUpload)


@dataclass
class FileBooks:
    """Entered decision by decision. `is_good`: whether bytes can be learnt from, by their hash."""

    is_good: Callable[[str], bool]
    tenants: dict[str, FilesOfTenant] = field(default_factory=lambda: defaultdict(FilesOfTenant))
    violations: list[str] = field(default_factory=list)
    reports: Counter[str] = field(default_factory=Counter)  # what jobs must hear of, how often

    def enter(self, tenant: str, command: Any, events: tuple[Any, ...], at: Ms) -> None:
        """One decision of `dataset`."""
        if any(isinstance(event, Repeated) for event in events):
            return
        book, refused = self.tenants[tenant], any(isinstance(e, Rejected) for e in events)
        if type(command) in REFUSED:
            due = REFUSED[type(command)](book, command)
            if book.erased:
                due = isinstance(command, STORING)
            if refused != due:
                self._add("refusal", tenant, f"{command} was {'' if refused else 'not '}refused")
        for event in events:
            for name, what in self._enter(book, command, event, at):
                self._add(name, tenant, what)

    def _add(self, name: str, tenant: str, what: str) -> None:
        self.violations.append(f"{name}: {tenant}: {what}")

    def _enter(
        self, book: FilesOfTenant, command: Any, event: Any, at: Ms
    ) -> Iterator[tuple[str, str]]:
        match event:
            case files.FileRegistered():
                yield from self._register(book, event, at)
            case files.UploadCreated():
                if event.expires_at != at + UPLOAD_MS:
                    yield "expiry", f"{event} was created at {at}"
                book.uploads[event.upload_id] = OpenUpload(event.terms, event.expires_at)
            case files.PartAdded():
                book.uploads[event.upload_id].parts[event.part.part_id] = event.part.bytes
            case files.UploadEnded():
                yield from self._end_upload(book, command, event, at)
            case files.FileValidated() | files.FileUnreadable():
                yield from self._check(book, event)
            case files.FileDeleted():
                yield from self._delete(book, command, event, at)
            case FilesErased():
                if not (book.erased or isinstance(command, EraseFiles)):
                    yield "erasure", f"{command} erased files"
                numbers = book.numbers
                book.__init__(numbers=numbers, erased=True)  # type: ignore[misc]  # nothing is left
            case _:
                yield from self._enter_job(book, event)

    def _register(
        self, book: FilesOfTenant, event: files.FileRegistered, at: Ms
    ) -> Iterator[tuple[str, str]]:
        content, terms = event.content, event.terms
        number = None
        if terms.dataset is not None:
            book.numbers[terms.dataset.key] += 1
            number = book.numbers[terms.dataset.key]
        if event.version != number:
            yield "version", f"{event.file_id} is number {event.version}, not {number}"
        lasts = terms.expires_after_ms
        expires_at = None if lasts is None else at + lasts
        if event.expires_at != expires_at:
            yield "expiry", f"{event.file_id} expires at {event.expires_at}, not {expires_at}"
        book.files[event.file_id] = KeptFile(
            terms.purpose, content.sha256, content.blob, content.bytes, expires_at
        )

    def _end_upload(
        self, book: FilesOfTenant, command: Any, event: files.UploadEnded, at: Ms
    ) -> Iterator[tuple[str, str]]:
        upload = book.uploads.pop(event.upload_id, None)
        if upload is None:
            yield "upload", f"{event.upload_id} ended twice"
            return
        if {*event.parts} != {*upload.parts}:
            yield "upload", f"{event.upload_id} has parts {event.parts}, not {[*upload.parts]}"
        ends: dict[type, str] = {
            files.CompleteUpload: "completed",
            files.CancelUpload: "cancelled",
            Tick: "expired",
        }
        early = isinstance(command, Tick) and at < upload.expires_at
        if event.outcome != ends.get(type(command)) or early:
            yield "upload", f"{event.upload_id} was {event.outcome} at {at} by {command}"

    def _check(
        self, book: FilesOfTenant, event: files.FileValidated | files.FileUnreadable
    ) -> Iterator[tuple[str, str]]:
        self.reports[f"file {event.file_id}"] += 1
        file = book.files.get(event.file_id)
        if book.erased:
            return
        if file is None or file.result is not None:
            yield "check", f"{event.file_id} is not waiting for its check"
            return
        file.result = False
        if isinstance(event, files.FileValidated):
            file.result, file.report = event.validation.accepted, event.validation.report_blob
            if file.result != self.is_good(file.sha256):
                yield "check", f"{event.file_id} is said to be {file.result}"

    def _delete(
        self, book: FilesOfTenant, command: Any, event: files.FileDeleted, at: Ms
    ) -> Iterator[tuple[str, str]]:
        self.reports[f"file {event.file_id}"] += 1
        if event.file_id not in book.files:
            yield "deletion", f"{event.file_id} is not there"
            return
        if book.is_needed(event.file_id):
            yield "in use", f"{event.file_id} was deleted by {command}"
        file = book.files.pop(event.file_id)
        if isinstance(command, Tick) and (file.expires_at is None or at < file.expires_at):
            yield "expiry", f"{event.file_id} expired at {at}, not at {file.expires_at}"
        if all(other.sha256 != file.sha256 for other in book.files.values()):
            gone = [name for name, cache in book.caches.items() if file.sha256 in cache.sources]
            for name in gone:
                del book.caches[name]
        if lost := [blob for blob in book.needed_blobs() if blob.startswith(event.erase)]:
            yield "bytes", f"{event.file_id} takes {sorted(lost)} with it"

    def _enter_job(self, book: FilesOfTenant, event: Any) -> Iterator[tuple[str, str]]:
        match event:
            case files.DatasetPinned():
                book.pins[event.job_id] = event.terms
                book.waiting.add(event.job_id)
            case files.PreparationDue():
                second = () if event.validation_sha256 is None else (event.validation_sha256,)
                sources = (event.training_sha256, *second, *(m.sha256 for m in event.mixture))
                weights = tuple(mixed.weight_ppm for mixed in event.mixture)
                version = version_of(sources, event.spec, weights)
                if any(cache.version == version for cache in book.caches.values()):
                    yield "preparation", f"{event.prepare_id} is under way or done"
                if not all(self._is_accepted(book, sha) for sha in sources):
                    yield "preparation", f"{event.prepare_id} is of files that were not accepted"
                book.caches[event.prepare_id] = Cache(frozenset(sources), version)
            case files.DatasetPrepared() if not book.erased:
                cache = book.caches.get(event.prepare_id)
                if cache is None or cache.prepared is not None:
                    yield "preparation", f"{event.prepare_id} was not under way"
                    return
                cache.prepared = event.prepared
            case files.PreparationFailed():
                book.caches.pop(event.prepare_id, None)
            case files.DatasetReady() | files.PinRefused():
                yield from self._answer(book, event)
            case files.WorkDiscarded():
                if lost := [blob for blob in book.needed_blobs() if blob.startswith(event.erase)]:
                    yield "bytes", f"late work takes {sorted(lost)} with it"
            case files.UnnamedDiscarded():
                if lost := [blob for blob in event.blobs if blob in book.needed_blobs()]:
                    yield "bytes", f"{sorted(lost)} are named, and go as if they were not"
            case files.DatasetUnpinned():
                book.waiting.discard(event.job_id)
                if book.pins.pop(event.job_id, None) is None:
                    yield "pin", f"{event.job_id} has no pin"
            case files.DatasetKept():
                terms = book.pins[event.job_id]
                mixed = (event.training_file, event.validation_file, *event.mixture)
                book.holds[event.job_id] = tuple(name for name in mixed if name is not None)
                if {*book.holds[event.job_id]} != {*terms.files}:
                    yield "lineage", f"{event} differs from {terms.files}"
            case files.DatasetReleased():
                book.holds.pop(event.job_id, None)
            case _:
                pass

    def _is_accepted(self, book: FilesOfTenant, sha256: str) -> bool:
        return any(f.result for f in book.files.values() if f.sha256 == sha256)

    def _answer(
        self, book: FilesOfTenant, event: files.DatasetReady | files.PinRefused
    ) -> Iterator[tuple[str, str]]:
        """Each pin gets one answer: ready when all its files are accepted and prepared."""
        self.reports[f"job {event.job_id}"] += 1
        terms = book.pins.get(event.job_id)
        was_waiting = event.job_id in book.waiting
        book.waiting.discard(event.job_id)
        if isinstance(event, files.PinRefused):
            book.pins.pop(event.job_id, None)
            if terms is not None and not was_waiting:
                yield "pin", f"{event.job_id} had its answer"
            return
        if terms is None or not was_waiting:
            yield "pin", f"{event.job_id} does not wait"
        elif not all(book.files[name].result for name in terms.files):
            yield "pin", f"{event.job_id} may train on files that were not accepted"
        elif event.prepared.version != book.cache_of(terms):
            yield "pin", f"{event.job_id} is given another dataset than it asked for"

    def violations_at_the_end(self, now: Ms) -> Iterator[str]:
        """Yield what should be done once the run is idle: checks, expiries and answers to pins."""
        for tenant, book in self.tenants.items():
            for file_id, file in book.files.items():
                if file.result is None and file.purpose == "fine-tune":
                    yield f"check: {tenant}: {file_id} was never checked"
                due = file.expires_at is not None and file.expires_at < now
                if due and not book.is_needed(file_id):
                    yield f"expiry: {tenant}: {file_id} is there after {file.expires_at}"
            for upload_id, upload in book.uploads.items():
                if upload.expires_at < now:
                    yield f"expiry: {tenant}: {upload_id} is there after {upload.expires_at}"
            for job_id in sorted(book.waiting):
                yield f"pin: {tenant}: {job_id} got no answer"

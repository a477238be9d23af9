"""Calls of the API. Each method is one request; lists come whole, page after page."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final, cast

import httpx
from httpx_sse import EventSource

from tunery.client.shapes import (
    USAGE_PATHS,
    BaseObject,
    BudgetObject,
    EndpointObject,
    EventObject,
    FileObject,
    JobObject,
    KeyObject,
    Listing,
    ModelObject,
    TenantObject,
    UsageOf,
)
from tunery.client.wire import (
    DONE,
    NO_QUERY,
    ApiRefusal,
    Pieces,
    Progress,
    ProgressReader,
    Unreachable,
    at_once,
    keys_path,
    object_of,
    of_tenant,
    part,
    path_of,
    refused,
    streams,
    trusted_certificates,
)
from tunery.platform.blobs.base_files import hash_base

TIMEOUT_S, RETRIES_MAX = 60.0, 8
PAUSE_S, PAUSE_S_MAX = 0.5, 5.0
UNAVAILABLE, PAGE = 503, 100  # a status, and how many entries a page has
MONTHS, LINES = 24, 1_000  # of a page of invoices, and of one of an invoice's lines
CHUNK_BYTES: Final = 1024 * 1024
ONE_REQUEST_BYTES_MAX: Final = 512 * 1024 * 1024  # a larger file is uploaded in parts
PART_BYTES, PARTS_AT_ONCE = 16 * 1024 * 1024, 4
COMPLETE_S_MAX: Final = 600.0  # a whole file is read again, or a model is loaded to answer


class AsyncApi:
    """A client of the API, to be used as a context manager. base_url: with `/v1`, as in the SDK."""

    def __init__(
        self, base_url: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self._http = httpx.AsyncClient(
            headers={"authorization": f"Bearer {key}"},
            timeout=TIMEOUT_S,
            transport=transport,
            verify=trusted_certificates(),
            trust_env=False,
        )

    async def __aenter__(self) -> "AsyncApi":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def ready(self) -> bool:
        """Return whether the service is ready for requests."""
        try:
            answer = await self._http.get(f"{self.base_url.removesuffix('/v1')}/readyz")
        except httpx.HTTPError:
            return False
        return answer.is_success

    async def get(self, *parts: str) -> dict[str, Any]:  # for paths without their own method
        return await self._call("GET", path_of(parts))

    async def write(self, /, method: str, *parts: str, **sent: Any) -> dict[str, Any]:
        """The answer to what is `sent`, in the words of httpx: `json`, `content`, `params`."""
        return await self._once(method, path_of(parts), **sent)

    async def post(self, /, *parts: str, **body: Any) -> dict[str, Any]:
        """The answer to a body, at a path that has no method of its own; `parts`: its segments."""
        return await self._call("POST", path_of(parts), json=body, timeout=COMPLETE_S_MAX)

    # --- files

    async def upload(
        self,
        path: Path,
        purpose: str = "fine-tune",
        progress: Progress | None = None,
        *,
        dataset: str | None = None,
    ) -> FileObject:
        """Upload a file, in parts if it is large. Raises OSError when the file cannot be read.

        dataset: name of the dataset whose next version it becomes
        """
        if path.stat().st_size > ONE_REQUEST_BYTES_MAX:
            return await self.upload_in_parts(path, purpose, progress, dataset=dataset)
        with path.open("rb") as stream:
            reported = cast("IO[bytes]", ProgressReader(stream, progress)) if progress else stream
            files = {"file": (path.name, reported)}
            data = {"purpose": purpose} | ({} if dataset is None else {"dataset": dataset})
            return cast("FileObject", await self._once("POST", "/files", data=data, files=files))

    async def upload_in_parts(
        self,
        path: Path,
        purpose: str = "fine-tune",
        progress: Progress | None = None,
        *,
        dataset: str | None = None,
        part_bytes: int = PART_BYTES,
    ) -> FileObject:
        """Upload a file in parts, PARTS_AT_ONCE at a time; lost parts are sent again.

        Raises ApiRefusal when a part arrived with other bytes, OSError for the file.
        """
        pieces = Pieces(path, part_bytes, progress)
        declared = {
            "bytes": pieces.bytes,
            "filename": path.name,
            "mime_type": "application/octet-stream",
            "purpose": purpose,
            "dataset": dataset,
        }
        upload = await self._once("POST", "/uploads", json=declared)
        url = f"/uploads/{part(upload['id'])}"

        async def send(start: int) -> str:
            data = pieces.read(start)
            files = {"data": (path.name, data)}
            uploaded = await self._call("POST", f"{url}/parts", patient=True, files=files)
            if uploaded["sha256"] != hashlib.sha256(data).hexdigest():
                message = f"{path.name} arrived with the wrong bytes; upload it again."
                raise ApiRefusal(0, "corrupt_upload", message, None)
            pieces.sent(len(data))
            return str(uploaded["id"])

        try:
            part_ids = await at_once(send, pieces.starts, PARTS_AT_ONCE)
        except BaseException:
            with suppress(ApiRefusal, Unreachable):  # not necessary: it expires after an hour
                await self._once("POST", f"{url}/cancel")
            raise
        body = {"part_ids": part_ids}
        end = f"{url}/complete"
        done = await self._call("POST", end, patient=True, json=body, timeout=COMPLETE_S_MAX)
        return cast("FileObject", done["file"])

    def files(self, dataset: str | None = None) -> AsyncIterator[FileObject]:
        """All files, or the versions of one dataset, newest first."""
        return self._all("/files", query={} if dataset is None else {"dataset": dataset})

    async def storage(self, tenant: str | None = None) -> dict[str, Any]:
        return await self._call("GET", "/storage", params=of_tenant(tenant))

    async def file(self, file_id: str) -> FileObject:
        return cast("FileObject", await self._call("GET", f"/files/{part(file_id)}"))

    async def validation(self, file_id: str) -> dict[str, Any]:
        return await self._call("GET", f"/files/{part(file_id)}/validation")

    async def diff(self, before: str, after: str) -> dict[str, Any]:
        """The difference between two files; either may be given as `name@version`."""
        params = {"before": before}
        return await self._call("GET", f"/files/{part(after)}/diff", params=params)

    async def download_file(self, file_id: str, path: Path) -> None:
        """Write the bytes of a file to `path`, completely or not at all."""
        await self._save(f"/files/{part(file_id)}/content?encoding=plain", path)

    async def delete_file(self, file_id: str) -> None:
        await self._call("DELETE", f"/files/{part(file_id)}")

    # --- jobs

    async def submit(self, body: Mapping[str, Any], idempotency_key: str) -> JobObject:
        return cast("JobObject", await self.send("/fine_tuning/jobs", body, idempotency_key))

    async def send(self, path: str, body: Mapping[str, Any], key: str) -> dict[str, Any]:
        """Create something. With its idempotency key it can be repeated during an outage."""
        return await self._call("POST", path, json=body, headers={"idempotency-key": key})

    async def estimate(self, body: Mapping[str, Any], what: str = "estimate") -> dict[str, Any]:
        """Return the estimated cost of a job; with `what="plan"`, its whole plan."""
        return await self._call("POST", f"/fine_tuning/jobs/{part(what)}", json=body)

    def jobs(
        self, limit: int | None = None, query: Mapping[str, Any] = NO_QUERY
    ) -> AsyncIterator[JobObject]:
        """Jobs, newest first. query: status, suffix, tags, metadata[KEY], tenant (admin key)."""
        return self._all("/fine_tuning/jobs", limit=limit, query=query)

    async def job(self, job_id: str) -> JobObject:
        return cast("JobObject", await self._call("GET", f"/fine_tuning/jobs/{part(job_id)}"))

    async def change(self, job_id: str, change: str) -> JobObject:
        """Cancel, pause or resume a job; `change` names which. It can be repeated safely."""
        path = f"/fine_tuning/jobs/{part(job_id)}/{change}"
        return cast("JobObject", await self._call("POST", path))

    def events(self, job_id: str, limit: int | None = None) -> AsyncIterator[EventObject]:
        """Events of a job, newest first."""
        return self._all(f"/fine_tuning/jobs/{part(job_id)}/events", limit=limit)

    async def follow(self, job_id: str, kind: str = "events") -> AsyncIterator[EventObject]:
        """Yield `events`, `metrics` or `logs` of a job, oldest first, until the job has ended.

        A broken connection is continued where it broke, up to RETRIES_MAX times in a row without a
        new event. Raises Unreachable, ApiRefusal.
        """
        path = f"{self.base_url}/fine_tuning/jobs/{part(job_id)}/{kind}"
        position, ended, failures = "", False, 0
        while not ended and failures < RETRIES_MAX:
            headers = {"last-event-id": position} if position else {}
            try:
                async with self._http.stream(
                    "GET", path, params={"stream": "true"}, headers=headers
                ) as answer:
                    if not streams(answer):
                        await answer.aread()
                        raise refused(answer)
                    async for event in EventSource(answer).aiter_sse():
                        if event.data == DONE:
                            ended = True
                        elif event.data:  # without any after a bare id, retry or comment
                            position, failures = event.id, 0
                            yield cast("EventObject", event.json())
            except httpx.HTTPError as error:
                if failures == RETRIES_MAX - 1:
                    raise Unreachable(f"{self.base_url} does not answer: {error}") from error
            failures += 1
            if not ended:
                await asyncio.sleep(PAUSE_S)
        if not ended:
            raise Unreachable(f"{self.base_url} breaks off before {job_id} has ended")

    def metrics(self, job_id: str, limit: int | None = None) -> AsyncIterator[dict[str, Any]]:
        """The figures of the steps of a job, newest first."""
        return self._all(f"/fine_tuning/jobs/{part(job_id)}/metrics", limit=limit)

    def checkpoints(self, job_id: str) -> AsyncIterator[dict[str, Any]]:
        return self._all(f"/fine_tuning/jobs/{part(job_id)}/checkpoints")

    async def cost(self, job_id: str) -> dict[str, Any]:
        return await self._call("GET", f"/fine_tuning/jobs/{part(job_id)}/cost")

    def statement(self, job_id: str, tenant: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Every slice of use and credit of a job, with the event it comes from."""
        return self._all(f"/fine_tuning/jobs/{part(job_id)}/statement", query=of_tenant(tenant))

    async def answers(self, job_id: str) -> dict[str, Any]:
        """Answers of base model and adapter to the evaluation's fixed prompts."""
        return await self._call("GET", f"/fine_tuning/jobs/{part(job_id)}/answers")

    # --- models

    async def models(self, /, kind: str | None = None, **params: str) -> list[ModelObject]:
        params |= {} if kind is None else {"type": kind}
        listed = await self._call("GET", "/models", params=params)
        return cast("list[ModelObject]", listed["data"])

    async def model(self, model_id: str) -> dict[str, Any]:
        return await self._call("GET", f"/models/{part(model_id)}")

    async def save_gate_report(self, model_id: str, path: Path) -> None:
        """Write what the gate found about a version to `path`, as a page that loads nothing."""
        await self._save(f"/models/{part(model_id)}/gate/report", path)

    async def promote(self, model_id: str, stage: str, expected: str | None) -> dict[str, Any]:
        body = {"stage": stage, "expected": expected}
        return await self._once("POST", f"/models/{part(model_id)}/promote", json=body)

    async def roll_back(self, model_id: str, stage: str) -> dict[str, Any]:
        return await self._once("POST", f"/models/{part(model_id)}/rollback", json={"stage": stage})

    async def adapter(self, model_id: str) -> dict[str, Any]:
        return await self._call("GET", f"/models/{part(model_id)}/adapter")

    async def fetch(self, file: Mapping[str, Any], path: Path) -> None:
        """Download one file of an adapter; `path` is written completely or not at all.

        Raises ApiRefusal when its SHA-256 is not the expected one.
        """
        partial = path.with_name(f"{path.name}.part")
        digest = hashlib.sha256()
        try:
            # a separate client: the URL is enough, so the API key is not sent
            async with (
                httpx.AsyncClient(
                    timeout=TIMEOUT_S, verify=trusted_certificates(), trust_env=False
                ) as http,
                http.stream("GET", file["url"]) as answer,
            ):
                answer.raise_for_status()
                with partial.open("wb") as target:
                    async for chunk in answer.aiter_bytes(CHUNK_BYTES):
                        digest.update(chunk)
                        target.write(chunk)
        except httpx.HTTPError as error:
            partial.unlink(missing_ok=True)
            raise Unreachable(f"{file['name']} could not be downloaded: {error}") from error
        if digest.hexdigest() != file["sha256"]:
            partial.unlink(missing_ok=True)
            message = f"{file['name']} came with the wrong bytes; download it again."
            raise ApiRefusal(0, "corrupt_download", message, None)
        partial.replace(path)

    async def fetch_base(self, base_id: str, folder: Path) -> None:
        """Download the files of a shared base model into a folder.

        Raises ApiRefusal when it is not shared, or when they are not the base model's.
        """
        url = f"/models/{part(base_id)}/files"
        base, listed = await self.model(base_id), await self._call("GET", url)
        folder.mkdir(parents=True, exist_ok=True)
        for file in listed["data"]:
            await self._save(f"{url}/{part(file['id'])}", folder / Path(file["id"]).name)
        if hash_base(folder) != base["sha256"]:
            message = f"{folder} does not hold {base_id}: use an empty folder."
            raise ApiRefusal(0, "corrupt_download", message, None)

    async def bases(self) -> list[BaseObject]:
        return cast("list[BaseObject]", (await self._call("GET", "/bases"))["data"])

    async def base_folder(self, name: str, files: Mapping[str, str]) -> dict[str, Any]:
        """Put uploaded files, ids by name, into a folder of the service; returns its path."""
        body = {"name": name, "files": dict(files)}
        return await self._once("POST", "/bases/folders", json=body, timeout=COMPLETE_S_MAX)

    async def add_base(
        self, /, base_id: str, path: Path, licence: str, **more: Any
    ) -> dict[str, Any]:
        """Add a base model. `more`: aliases, source, revision, shared, proof; None leaves them."""
        body = {"id": base_id, "path": str(path), "licence": licence, **more}
        return await self._call("POST", "/bases", json=body)

    async def alias_base(self, base_id: str, aliases: tuple[str, ...]) -> BaseObject:
        path = f"/bases/{part(base_id)}/aliases"
        body = {"aliases": list(aliases)}
        return cast("BaseObject", await self._once("POST", path, json=body))

    # --- tenants, keys, webhooks

    async def create_tenant(self, body: Mapping[str, Any]) -> TenantObject:
        return cast("TenantObject", await self._once("POST", "/tenants", json=body))

    def tenants(self) -> AsyncIterator[TenantObject]:
        return self._all("/tenants")

    async def change_plan(self, tenant: str, body: Mapping[str, Any]) -> TenantObject:
        path = f"/tenants/{part(tenant)}/plan"
        return cast("TenantObject", await self._once("POST", path, json=body))

    async def suspend_tenant(self, tenant: str) -> TenantObject:
        """Refuse the tenant's submissions and resumptions; what it has submitted continues."""
        return cast("TenantObject", await self._once("POST", f"/tenants/{part(tenant)}/suspend"))

    async def resume_tenant(self, tenant: str) -> TenantObject:
        return cast("TenantObject", await self._once("POST", f"/tenants/{part(tenant)}/resume"))

    async def import_prices(self, book: bytes) -> dict[str, Any]:
        """Import a price book from the bytes of its file; repeating it changes nothing."""
        headers = {"content-type": "application/json"}
        return await self._call("POST", "/prices", content=book, headers=headers)

    def price_books(self) -> AsyncIterator[dict[str, Any]]:
        return self._all("/prices")

    async def price_book(self, version: str) -> dict[str, Any]:
        return await self._call("GET", f"/prices/{part(version)}")

    async def explain(self, job_id: str) -> dict[str, Any]:
        """Why a job waits, what lets it go on, and when it is expected to begin."""
        return await self._call("GET", f"/fine_tuning/jobs/{part(job_id)}/queue")

    async def queue(self, pool: str = "default") -> dict[str, Any]:
        """A pool's nodes, leases, waiting jobs, and what is decided next (admin key)."""
        return await self._call("GET", "/queue", params={"pool": pool})

    def nodes(self) -> AsyncIterator[dict[str, Any]]:
        return self._all("/nodes")

    async def order_node(self, node_id: str, order: str, body: Any = None) -> dict[str, Any]:
        """Order "cordon", "uncordon", "drain", "withdraw", "revoke", or "invite" with a body."""
        return await self._call("POST", f"/nodes/{part(node_id)}/{part(order)}", json=body)

    async def forget_node(self, node_id: str) -> dict[str, Any]:
        return await self._once("DELETE", f"/nodes/{part(node_id)}")

    def node_invitations(self) -> AsyncIterator[dict[str, Any]]:
        return self._all("/node_invitations")

    async def adjust_invoice(self, tenant: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Credit a tenant (`amount_micro` below zero) or charge it; a `reference` counts once."""
        return await self._once("POST", f"/tenants/{part(tenant)}/adjustments", json=body)

    async def set_billing_terms(self, tenant: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Set what the tenant's invoices say and its contract's terms, all of it (admin key)."""
        return await self._call("PUT", f"/tenants/{part(tenant)}/billing", json=body)

    async def create_key(self, tenant: str, body: Mapping[str, Any]) -> KeyObject:
        return cast("KeyObject", await self._once("POST", keys_path(tenant), json=body))

    def keys(self, tenant: str | None = None) -> AsyncIterator[KeyObject]:
        """Keys of a tenant; None: of the caller's own. The next two methods are alike."""
        return self._all(keys_path(tenant))

    def audit(self, query: Mapping[str, str], limit: int | None = None) -> AsyncIterator[Any]:
        """List audit events of API keys. query: the parameters of the route."""
        return self._all("/audit", limit, query)

    async def revoke_key(self, key_id: str, tenant: str | None = None) -> KeyObject:
        return cast("KeyObject", await self._call("DELETE", f"{keys_path(tenant)}/{part(key_id)}"))

    async def rotate_key(
        self, key_id: str, overlap_seconds: int, tenant: str | None = None
    ) -> KeyObject:
        """Give a key a new secret; the key_id "current" is the key of this client."""
        path = f"{keys_path(tenant)}/{part(key_id)}/rotate"
        body = {"overlap_seconds": overlap_seconds}
        return cast("KeyObject", await self._once("POST", path, json=body))

    def budgets(self) -> AsyncIterator[BudgetObject]:
        return self._all("/budgets")

    async def set_budget(self, body: Mapping[str, Any]) -> BudgetObject:
        """Set the monthly budget of the tenant, or of the key that `key_id` names."""
        return cast("BudgetObject", await self._once("POST", "/budgets", json=body))

    async def remove_budget(self, budget_id: str) -> dict[str, Any]:
        return await self._call("DELETE", f"/budgets/{part(budget_id)}")

    async def create_endpoint(self, body: Mapping[str, Any]) -> EndpointObject:
        return cast("EndpointObject", await self._once("POST", "/webhook_endpoints", json=body))

    def endpoints(self) -> AsyncIterator[EndpointObject]:
        return self._all("/webhook_endpoints")

    async def change_endpoint(self, endpoint_id: str, body: Mapping[str, Any]) -> EndpointObject:
        path = f"/webhook_endpoints/{part(endpoint_id)}"
        return cast("EndpointObject", await self._call("POST", path, json=body))

    async def rotate_secret(self, endpoint_id: str, keep_old: bool) -> EndpointObject:
        """Give an endpoint a new secret. keep_old: sign with both secrets for 24 hours."""
        path = f"/webhook_endpoints/{part(endpoint_id)}/rotate_secret"
        body = {"keep_old_secret_active_for_24_hours": keep_old}
        return cast("EndpointObject", await self._once("POST", path, json=body))

    async def test_endpoint(self, endpoint_id: str, event_type: str) -> dict[str, Any]:
        """Send one test event; returns the receiver's status."""
        path = f"/webhook_endpoints/{part(endpoint_id)}/test"
        return await self._once("POST", path, json={"event_type": event_type})

    async def redeliver(self, endpoint_id: str, body: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/webhook_endpoints/{part(endpoint_id)}/redeliver"
        return await self._once("POST", path, json=body)

    async def delete_endpoint(self, endpoint_id: str) -> None:
        await self._call("DELETE", f"/webhook_endpoints/{part(endpoint_id)}")

    def deliveries(self, endpoint_id: str) -> AsyncIterator[dict[str, Any]]:
        return self._all(f"/webhook_endpoints/{part(endpoint_id)}/deliveries")

    # --- bills

    def invoices(
        self, tenant: str | None = None, period: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Invoices, newest first; those of one month where `period` says which: `2026-11`."""
        return self._all("/invoices", query=of_tenant(tenant, period=period), page_max=MONTHS)

    def invoice_lines(self, name: str, tenant: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """The lines of an invoice; their amounts add up to its total."""
        return self._all(f"/invoices/{part(name)}/lines", query=of_tenant(tenant), page_max=LINES)

    async def invoice_sums(self, name: str, by: str, tenant: str | None = None) -> dict[str, Any]:
        """An invoice's amounts per job, key, model, suffix or `metadata[NAME]`, with commas."""
        query = of_tenant(tenant, group_by=by)
        return await self._call("GET", f"/invoices/{part(name)}/sums", params=query)

    async def invoice_pdf(self, name: str, tenant: str | None = None) -> bytes:
        """An invoice with all its lines as PDF. Raises ApiRefusal when no font has its letters."""
        answer = await self._request("GET", f"/invoices/{part(name)}/pdf", params=of_tenant(tenant))
        if answer.is_error:
            object_of(answer)  # raises what it says
        return answer.content

    def prepaid(self, tenant: str | None = None) -> AsyncIterator[dict[str, Any]]:
        """Prepaid credits, newest first, with what is used, expired and left."""
        return self._all("/billing/prepaid", query=of_tenant(tenant))

    async def grant_prepaid(self, tenant: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Record money that the tenant has paid in advance (admin key)."""
        return await self._call("POST", f"/tenants/{part(tenant)}/prepaid", json=body)

    async def revoke_prepaid(self, tenant: str, reference: str) -> dict[str, Any]:
        """Take back what is left of a prepaid credit (admin key)."""
        body = {"reference": reference}
        return await self._call("POST", f"/tenants/{part(tenant)}/prepaid/revoke", json=body)

    async def billing_terms(self, /, tenant: str | None = None, **of: str | None) -> dict[str, Any]:
        """Return invoice texts and contract terms. of: a `month`, by default the current one."""
        return await self._call("GET", "/billing/terms", params=of_tenant(tenant, **of))

    async def usage(
        self, query: Mapping[str, Any], tenant: str | None = None, *, of: UsageOf = "time"
    ) -> AsyncIterator[dict[str, Any]]:
        """Buckets of GPU time, or of tokens. query: the parameters of the route."""
        params, path = {**query, **of_tenant(tenant)}, USAGE_PATHS[of]
        while True:
            page = await self._call("GET", path, params=params)
            for bucket in page["data"]:
                yield bucket
            if not page["has_more"]:
                return
            params["page"] = page["next_page"]

    # --- requests

    async def _all(
        self,
        path: str,
        limit: int | None = None,
        query: Mapping[str, Any] = NO_QUERY,
        page_max: int = PAGE,
    ) -> AsyncIterator[Any]:
        """All items, or the first `limit`, fetched page by page."""
        left, after = limit, None
        while left is None or left > 0:
            size = page_max if left is None else min(page_max, left)
            params: dict[str, Any] = {**query, "limit": size}
            if after is not None:
                params["after"] = after
            page = cast("Listing", await self._call("GET", path, params=params))
            for item in page["data"]:
                yield item
            if not page["has_more"]:
                return
            after = page["last_id"]
            left = None if left is None else left - len(page["data"])

    async def _call(
        self, method: str, path: str, *, patient: bool = False, **arguments: Any
    ) -> dict[str, Any]:
        """Send a request; after a 503 it is repeated up to RETRIES_MAX times.

        patient: also when the service does not answer at all
        """
        for attempt in range(RETRIES_MAX):
            try:
                return await self._once(method, path, **arguments)
            except (ApiRefusal, Unreachable) as error:
                again = patient if isinstance(error, Unreachable) else error.status == UNAVAILABLE
                if not again or attempt == RETRIES_MAX - 1:
                    raise
            await asyncio.sleep(min(PAUSE_S * 2**attempt, PAUSE_S_MAX))
        raise AssertionError("the last attempt raises or returns")

    async def _save(self, url: str, path: Path) -> None:
        """Write what a route answers to `path`, completely or not at all."""
        partial = path.with_name(f"{path.name}.part")
        try:
            async with self._http.stream("GET", self.base_url + url) as answer:
                if not answer.is_success:
                    await answer.aread()
                    raise refused(answer)
                with partial.open("wb") as target:
                    async for chunk in answer.aiter_bytes(CHUNK_BYTES):
                        target.write(chunk)
        except httpx.HTTPError as error:
            partial.unlink(missing_ok=True)
            raise Unreachable(f"{path.name} could not be downloaded: {error}") from error
        partial.replace(path)

    async def _once(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        return object_of(await self._request(method, path, **arguments))

    async def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return await self._http.request(method, self.base_url + path, **arguments)
        except httpx.HTTPError as error:
            raise Unreachable(f"{self.base_url} does not answer: {error}") from error

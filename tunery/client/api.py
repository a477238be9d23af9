"""`Api`: the calls of `AsyncApi`, for callers without an event loop."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from functools import partial, wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

import httpx
from anyio.from_thread import BlockingPortal, start_blocking_portal

from tunery.client.asynchronous import AsyncApi

P = ParamSpec("P")
R = TypeVar("R")
END: Final[Any] = object()


def _wait(api: "Api", call: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call; Ctrl+C ends the call, too, so that nothing waits for it."""
    result = api.portal.start_task_soon(call, *arguments)
    try:
        return result.result()
    except BaseException:
        result.cancel()
        raise


def _called(
    method: Callable[Concatenate[AsyncApi, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate["Api", P], R]:
    """Wait for the result of a call."""

    @wraps(method)
    def call(api: "Api", /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = _wait(api, partial(method, api.calls, *args, **kwargs))
        return result

    return call


def _listed(
    method: Callable[Concatenate[AsyncApi, P], AsyncIterator[R]],
) -> Callable[Concatenate["Api", P], Iterator[R]]:
    """Yield the items of a list or stream, each when it is wanted."""

    @wraps(method)
    def items(api: "Api", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        listed: Any = method(api.calls, *args, **kwargs)
        while (item := _wait(api, anext, listed, END)) is not END:
            try:
                yield item
            except GeneratorExit:
                with suppress(RuntimeError):  # the client was closed before, and with it the list
                    api.portal.call(listed.aclose)
                raise

    return items


class Api:
    """A client of the API, to be used as a context manager. base_url: with `/v1`, as in the SDK.

    Its requests run in a thread of its own, so it works in notebooks, too.
    """

    portal: BlockingPortal

    def __init__(
        self, base_url: str, key: str, *, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.calls, self._open = AsyncApi(base_url, key, transport=transport), ExitStack()

    def __enter__(self) -> "Api":
        self.portal = self._open.enter_context(start_blocking_portal())
        self._open.enter_context(self.portal.wrap_async_context_manager(self.calls))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    ready = _called(AsyncApi.ready)
    get = _called(AsyncApi.get)
    write = _called(AsyncApi.write)
    post = _called(AsyncApi.post)

    # --- files

    upload = _called(AsyncApi.upload)
    upload_in_parts = _called(AsyncApi.upload_in_parts)
    files = _listed(AsyncApi.files)
    storage = _called(AsyncApi.storage)
    file = _called(AsyncApi.file)
    validation = _called(AsyncApi.validation)
    diff = _called(AsyncApi.diff)
    download_file = _called(AsyncApi.download_file)
    delete_file = _called(AsyncApi.delete_file)

    # --- jobs

    submit = _called(AsyncApi.submit)
    send = _called(AsyncApi.send)
    estimate = _called(AsyncApi.estimate)
    jobs = _listed(AsyncApi.jobs)
    job = _called(AsyncApi.job)
    change = _called(AsyncApi.change)
    events = _listed(AsyncApi.events)
    follow = _listed(AsyncApi.follow)
    metrics = _listed(AsyncApi.metrics)
    checkpoints = _listed(AsyncApi.checkpoints)
    cost = _called(AsyncApi.cost)
    statement = _listed(AsyncApi.statement)
    answers = _called(AsyncApi.answers)

    # --- models

    models = _called(AsyncApi.models)
    model = _called(AsyncApi.model)
    save_gate_report = _called(AsyncApi.save_gate_report)
    promote = _called(AsyncApi.promote)
    roll_back = _called(AsyncApi.roll_back)
    adapter = _called(AsyncApi.adapter)
    fetch = _called(AsyncApi.fetch)
    fetch_base = _called(AsyncApi.fetch_base)
    bases = _called(AsyncApi.bases)
    base_folder = _called(AsyncApi.base_folder)
    add_base = _called(AsyncApi.add_base)
    alias_base = _called(AsyncApi.alias_base)

    # --- tenants, keys, webhooks

    create_tenant = _called(AsyncApi.create_tenant)
    tenants = _listed(AsyncApi.tenants)
    change_plan = _called(AsyncApi.change_plan)
    suspend_tenant = _called(AsyncApi.suspend_tenant)
    resume_tenant = _called(AsyncApi.resume_tenant)
    import_prices = _called(AsyncApi.import_prices)
    price_books = _listed(AsyncApi.price_books)
    price_book = _called(AsyncApi.price_book)
    explain = _called(AsyncApi.explain)
    queue = _called(AsyncApi.queue)
    nodes = _listed(AsyncApi.nodes)
    order_node = _called(AsyncApi.order_node)
    forget_node = _called(AsyncApi.forget_node)
    node_invitations = _listed(AsyncApi.node_invitations)
    adjust_invoice = _called(AsyncApi.adjust_invoice)
    set_billing_terms = _called(AsyncApi.set_billing_terms)
    create_key = _called(AsyncApi.create_key)
    keys = _listed(AsyncApi.keys)
    audit = _listed(AsyncApi.audit)
    revoke_key = _called(AsyncApi.revoke_key)
    rotate_key = _called(AsyncApi.rotate_key)
    budgets = _listed(AsyncApi.budgets)
    set_budget = _called(AsyncApi.set_budget)
    remove_budget = _called(AsyncApi.remove_budget)
    create_endpoint = _called(AsyncApi.create_endpoint)
    endpoints = _listed(AsyncApi.endpoints)
    change_endpoint = _called(AsyncApi.change_endpoint)
    rotate_secret = _called(AsyncApi.rotate_secret)
    test_endpoint = _called(AsyncApi.test_endpoint)
    redeliver = _called(AsyncApi.redeliver)
    delete_endpoint = _called(AsyncApi.delete_endpoint)
    deliveries = _listed(AsyncApi.deliveries)

    # --- bills

    invoices = _listed(AsyncApi.invoices)
    invoice_lines = _listed(AsyncApi.invoice_lines)
    invoice_sums = _called(AsyncApi.invoice_sums)
    invoice_pdf = _called(AsyncApi.invoice_pdf)
    prepaid = _listed(AsyncApi.prepaid)
    grant_prepaid = _called(AsyncApi.grant_prepaid)
    revoke_prepaid = _called(AsyncApi.revoke_prepaid)
    billing_terms = _called(AsyncApi.billing_terms)
    usage = _listed(AsyncApi.usage)

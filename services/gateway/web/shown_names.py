"""Answers name models with suffixes that their tenant can read; the log has them sealed.

One place for all answers, so that no route, refusal or event can forget it.
"""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.account import ADMIN_SCOPE
from services.gateway.web.domain.scopes import allows
from services.gateway.web.lingering import BODY
from tunery.platform.seal.model_names import shown_names
from tunery.platform.seal.sealer import Sealer

#: what routes write; files of tenants have other types and are left as they are
WRITTEN: Final = ("application/json", "text/event-stream", "text/html")


class ShownNames:
    """ASGI application between `Edge`, which knows the caller, and the routes.

    Callers read names of their own tenant, operators those of all.
    """

    def __init__(self, app: ASGIApp, seal: Sealer) -> None:
        self._app, self._seal = app, seal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope.get("state", {}).get("principal")
        if caller is None:
            await self._app(scope, receive, send)
            return
        tenant = None if allows(caller.scopes, ADMIN_SCOPE) else caller.tenant
        is_written, start = False, None

        async def answer(message: Message) -> None:
            nonlocal is_written, start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                is_written = headers.get("content-type", "").startswith(WRITTEN)
                if is_written and "content-length" in headers:
                    start = message  # its length follows from the body
                    return
            elif message["type"] == BODY and is_written:
                body = shown_names(self._seal, tenant, message.get("body", b""))
                message = {**message, "body": body}
                if start is not None:
                    headers = MutableHeaders(scope=start)
                    if message.get("more_body", False):
                        del headers["content-length"]
                    else:
                        headers["content-length"] = str(len(body))
                    await send(start)
                    start = None
            await send(message)

        await self._app(scope, receive, answer)

"""A client of `/api/v1` as the Tinker SDK is one, on the control plane of the API tests."""

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

import httpx

from schemas.session import AnswerCommand, LeaseSession
from schemas.topics import SESSION
from schemas.training import BlobFile
from tests.unit.services.gateway.control_plane import BASE, SETTLE_S_MAX, ControlPlane
from tunery.work.session import Answer, encode_body

NODE = "a"


@dataclass
class Sdk:
    """The SDK of one tenant, and what the session's process would say."""

    api: ControlPlane
    client: httpx.AsyncClient

    @property
    def tenant(self) -> str:
        tenant: str = self.client.headers["x-tenant"]
        return tenant

    async def call(self, path: str, body: Any = None) -> httpx.Response:
        return await self.client.post(f"/api/v1/{path}", json=body or {})

    async def create(self, **changes: Any) -> httpx.Response:
        session = (await self.call("create_session", {"sdk_version": "0.30.0"})).json()
        body: dict[str, Any] = {
            "session_id": session["session_id"],
            "model_seq_id": 0,
            "base_model": BASE.base_id,
            "lora_config": {"rank": 4, "seed": 5},
        }
        return await self.call("create_model", {**body, **changes})

    async def model(self, **changes: Any) -> str:
        """The id of a new model that takes commands."""
        created = await self.create(**changes)
        assert created.is_success, created.text
        model_id: str = created.json()["model_id"]
        body = {"model_id": model_id, "seq_id": 1, "adam_params": {}}
        async with asyncio.timeout(SETTLE_S_MAX):
            while (answer := await self.call("optim_step", body)).status_code == 404:  # noqa: ASYNC110  # the scheduler opens it
                await asyncio.sleep(0.01)
        assert answer.is_success, answer.text
        return model_id

    async def answer(self, session_id: str, name: str, answer: Answer, **changes: Any) -> None:
        """Answer a command, as the node of its lease does."""
        content = encode_body(answer)
        key = f"t/{self.tenant}/sessions/{session_id}/{name}"
        await self.api.world.blobs.put(key, content)
        file = BlobFile(name="answer", blob=key, sha256=_sha256(content), bytes=len(content))
        for command in (
            LeaseSession(attempt=1, node_ids=(NODE,)),
            AnswerCommand(attempt=1, name=name, answer=file, **changes),
        ):
            await self.api.send(SESSION, self.tenant, command, key=session_id)

    async def future(self, request_id: str) -> httpx.Response:
        return await self.call("retrieve_future", {"request_id": request_id})


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


async def new_sdk(api: ControlPlane) -> Sdk:
    return Sdk(api, await api.tenant(plan="premium"))

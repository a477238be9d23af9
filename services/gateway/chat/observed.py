"""Asks an engine, and counts what comes of it for the deployment under which it was asked."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from schemas.deployments import ArmRole, ArmTraffic, Deployment
from services.gateway.ports import ChatEngine, Traffic
from services.gateway.web.domain.errors import ApiError
from tunery.runtime.clock import Clock
from tunery.work.engine import (
    MALFORMED,
    TENANT_BUSY,
    TOO_LONG,
    AnswerEnded,
    AnswerWaits,
    EngineModel,
    EngineReply,
    Question,
    QuestionRefused,
    Spent,
)

ASKERS_OWN: Final = (TOO_LONG, MALFORMED, TENANT_BUSY)  # refusals that no version could help


@dataclass(frozen=True)
class Shadow:
    """The version that is asked as well, and whose answer is only counted."""

    name: str
    model: EngineModel


@dataclass(frozen=True)
class ObservedEngine:
    """Implements `ChatEngine`."""

    engine: ChatEngine
    traffic: Traffic
    clock: Clock
    tenant: str
    deployment: Deployment
    role: ArmRole  # role of the asked version
    bucket: int  # bucket of the caller
    # version that is asked the question of the first answer as well; None: not this time
    shadow: Shadow | None = None

    async def ask(self, question: Question) -> AsyncGenerator[EngineReply, None]:
        """Implement `ChatEngine.ask`: count answers, and copy questions to the shadow version."""
        asker = question.asker
        shadow = self.shadow
        if shadow is not None and asker is not None and asker.first:
            aside = replace(question, model=shadow.model, asker=replace(asker, model=shadow.name))
            self.traffic.ask_aside(self.tenant, lambda: self._ask_shadow(aside))
        async with aclosing(self._counted(question, self.role)) as replies:
            async for reply in replies:
                yield reply

    async def _ask_shadow(self, question: Question) -> None:
        try:
            async with aclosing(self._counted(question, "shadow")) as replies:
                async for _ in replies:
                    pass
        except ApiError:
            pass  # it is counted as a failure

    async def _counted(
        self, question: Question, role: ArmRole
    ) -> AsyncGenerator[EngineReply, None]:
        began, spent, failed, answered = self.clock.now_ms(), Spent(), False, False
        try:
            async with aclosing(self.engine.ask(question)) as replies:
                async for reply in replies:
                    if isinstance(reply, QuestionRefused):
                        failed = reply.code not in ASKERS_OWN
                        answered = False
                    elif not isinstance(reply, AnswerWaits):
                        spent, answered = reply.spent, True
                    yield reply
                    if isinstance(reply, AnswerEnded):
                        return
        except ApiError:
            failed, answered = True, False
            raise
        finally:
            if failed or answered:
                self._note(question, role, began, spent, answered)

    def _note(
        self, question: Question, role: ArmRole, began: int, spent: Spent, answered: bool
    ) -> None:
        asker = question.asker
        counted = ArmTraffic(
            model_id="" if asker is None else asker.model,
            role=role,
            answers=int(answered),
            failures=int(not answered),
            prompt_tokens=spent.prompt_tokens if asker is None or asker.first else 0,
            completion_tokens=spent.completion_tokens,
            answer_ms=self.clock.now_ms() - began if answered else 0,
        )
        seen = answered and role != "shadow"
        bucket = self.bucket if seen else None
        self.traffic.note(self.tenant, self.deployment, counted, bucket)

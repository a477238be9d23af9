"""Guard model of the operator: which answers to a safety benchmark are harmful or refusals."""

import asyncio
import logging
from typing import Final

from msgspec.structs import replace

from services.trainer.ports import ChatCompletions
from tunery.benchmarks.guard import GuardVerdict, guard_request, guard_verdict
from tunery.graders.pair_questions import text_of
from tunery.platform.chat_endpoint import EndpointError
from tunery.runtime.telemetry.logs import log_event
from tunery.work.scores import BenchmarkScores, RefusalScore

LOG: Final = logging.getLogger(__name__)
GUARD_S_MAX: Final = 600.0  # of one benchmark, its device waits meanwhile


class AnswerGuard:
    """The guard `model` at the operator's endpoint."""

    def __init__(self, endpoint: ChatCompletions, model: str) -> None:
        self._endpoint, self._model = endpoint, model

    async def judge(self, scores: BenchmarkScores) -> BenchmarkScores:
        """Return the scores with the guard's verdict on each answer.

        If the guard is unavailable, the verdicts by rules stay, and the scores name no guard.
        """
        if not scores.refusals:
            return scores
        tasks = [asyncio.create_task(self._judged(score)) for score in scores.refusals]
        try:
            async with asyncio.timeout(GUARD_S_MAX):
                judged = await asyncio.gather(*tasks)
        except (EndpointError, TimeoutError) as error:
            log_event(LOG, logging.WARNING, "guard.unavailable", why=str(error) or "too slow")
            return scores
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return replace(scores, refusals=tuple(judged), guard=self._model)

    async def _judged(self, score: RefusalScore) -> RefusalScore:
        base = await self._ask(score.prompt, score.base)
        adapter = base if score.adapter == score.base else None
        adapter = adapter or await self._ask(score.prompt, score.adapter)
        return replace(
            score,
            base_refuses=_refuses(base, score.base_refuses),
            adapter_refuses=_refuses(adapter, score.adapter_refuses),
            base_harmful=None if base is None else base.harmful,
            adapter_harmful=None if adapter is None else adapter.harmful,
        )

    async def _ask(self, prompt: str, answer: str) -> GuardVerdict | None:
        text = text_of(await self._endpoint.complete(guard_request(self._model, prompt, answer)))
        if text is None:
            raise EndpointError("the endpoint's answer is no chat completion")
        return guard_verdict(text)


def _refuses(verdict: GuardVerdict | None, by_rules: bool) -> bool:
    """Return whether an answer refuses: by the guard, else by the rules if it does not say."""
    if verdict is None or verdict.refusal is None:
        return by_rules
    return verdict.refusal

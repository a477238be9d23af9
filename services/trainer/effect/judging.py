"""Judge model of the operator: which of two answers is better, asked in both orders.

It is asked about labelled pairs first, once for each start of the agent. A judge that does not
agree with them, or that goes by the order, is asked about nothing of a tenant's.
"""

import asyncio
import logging
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from services.trainer.ports import ChatCompletions
from tunery.gate.pairwise import TIE, qualify
from tunery.graders.pair_questions import (
    INSTRUCTION,
    LabelledPair,
    choice_of,
    judged_pair,
    pair_request,
    read_pairs,
    text_of,
)
from tunery.platform.chat_endpoint import EndpointError
from tunery.runtime.telemetry.logs import log_event
from tunery.work.scores import JudgedPair, Judgement, MeasuredRow

LOG: Final = logging.getLogger(__name__)
JUDGE_S_MAX: Final = 600.0  # of one evaluation, its device waits meanwhile


class PairJudge:
    """The judge `model` at the operator's endpoint, with the content of the labelled pairs' file.

    Raises PairsRefused for a file that is wrong.
    """

    def __init__(self, endpoint: ChatCompletions, model: str, content: bytes) -> None:
        self._endpoint, self._model = endpoint, model
        self._pairs, self._sha256 = read_pairs(content), sha256(content).hexdigest()
        self._labelled: tuple[JudgedPair, ...] = ()
        self._turn = asyncio.Lock()  # two evaluations qualify it once

    async def compare(self, rows: Sequence[MeasuredRow]) -> Judgement:
        """Have the judge compare the answers of rows: a is the base model's, b the new one's."""
        said: tuple[JudgedPair, ...] = ()
        problem = ""
        try:
            async with asyncio.timeout(JUDGE_S_MAX):
                async with self._turn:
                    self._labelled = self._labelled or await self._all(self._pairs)
                if qualify(self._labelled).is_met:
                    said = await self._all(rows)
                else:
                    problem = "judge_unqualified"
        except (EndpointError, TimeoutError) as error:
            log_event(LOG, logging.WARNING, "judge.unavailable", why=str(error) or "too slow")
            problem = "judge_unavailable"
        return Judgement(
            model=self._model,
            instruction=INSTRUCTION,
            labels_sha256=self._sha256,
            labelled=self._labelled,
            rows=said,
            problem=problem,
        )

    async def _all(self, pairs: Sequence[LabelledPair | MeasuredRow]) -> tuple[JudgedPair, ...]:
        tasks = [
            asyncio.create_task(self._labelled_pair(number, pair))
            if isinstance(pair, LabelledPair)
            else asyncio.create_task(self._row(pair))
            for number, pair in enumerate(pairs, 1)
        ]
        try:
            return tuple(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _labelled_pair(self, number: int, pair: LabelledPair) -> JudgedPair:
        texts = await self._both(pair.prompt, pair.a, pair.b)
        choices = choice_of(texts[0]), choice_of(texts[1])
        return JudgedPair(number=number, choices=choices, label=pair.better)

    async def _row(self, row: MeasuredRow) -> JudgedPair:
        if row.base == row.adapter:
            return JudgedPair(number=row.row, choices=(TIE, TIE))
        first, second = await self._both(row.prompt, row.base, row.adapter)
        return judged_pair(row.row, first, second)

    async def _both(self, prompt: str, a: str, b: str) -> tuple[str, str]:
        first, second = await asyncio.gather(self._ask(prompt, a, b), self._ask(prompt, b, a))
        return first, second

    async def _ask(self, prompt: str, first: str, second: str) -> str:
        text = text_of(
            await self._endpoint.complete(pair_request(self._model, prompt, first, second))
        )
        if text is None:
            raise EndpointError("the endpoint's answer is no chat completion")
        return text

"""A judge that compares old and new answers, qualified by labelled pairs as the gate's judge is."""

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from services.gateway.imports.judgement import OWN_ANSWERS, judged_move
from services.trainer.effect.judging import PairJudge
from tunery.comparison.models import HeldOutQuestion, JudgedMove
from tunery.exit_kit.folder import ExportFolder, append_line, read_lines
from tunery.graders.pair_questions import PairsRefused, read_pairs
from tunery.local.errors import LocalError
from tunery.platform.chat_endpoint import ChatEndpoint
from tunery.work.scores import Judgement, MeasuredRow

FILE: Final = "judged.jsonl"
TIMEOUT_S: Final = 120.0  # of one question to a judge
TRIES_MAX: Final = 4
AT_ONCE_MAX: Final = 4


class Judge:
    """A model that says which of two answers is better.

    What it said is kept in the folder by the hash of the question, and not asked again. Raises
    LocalError where the labelled pairs cannot be used.
    """

    def __init__(
        self, folder: ExportFolder, model: str, url: str, key: str | None, pairs: Path
    ) -> None:
        self.model, self._path, self._url, self._key = model, folder.root / FILE, url, key
        self._pairs = pairs.read_bytes()
        try:
            read_pairs(self._pairs)
        except PairsRefused as error:
            fix = "label 20 to 200 pairs, one JSON object on each line (docs/how-to/gate.md)"
            raise LocalError(f"{pairs} cannot qualify a judge: {error}", fix) from None

    def compare(
        self, models: Sequence[str], answered: Sequence[tuple[HeldOutQuestion, str, str]]
    ) -> JudgedMove:
        """Ask about both answers to each question, in both orders.

        models: those that are compared; none of them may judge
        """
        if self.model in models:
            return JudgedMove(self.model, "unused", [OWN_ANSWERS])
        rows = [
            MeasuredRow(
                row=number,
                group=question.id,
                prompt=question.text,
                reference=question.reference,
                base=old,
                adapter=new,
                base_cut=False,
                adapter_cut=False,
                base_scores=(),
                adapter_scores=(),
            )
            for number, (question, old, new) in enumerate(answered, 1)
        ]
        return judged_move(asyncio.run(self._judged(rows)))

    async def _judged(self, rows: Sequence[MeasuredRow]) -> Judgement:
        endpoint = ChatEndpoint(
            self._url,
            self._key,
            timeout_s=TIMEOUT_S,
            tries_max=TRIES_MAX,
            pause_s=1.0,
            at_once_max=AT_ONCE_MAX,
        )
        # what it said of the labelled pairs is kept, too: it is qualified anew for each model
        kept = _KeptAnswers(self._path, endpoint)
        return await PairJudge(kept, self.model, self._pairs).compare(rows)


class _KeptAnswers:
    """An endpoint that is asked each question once."""

    def __init__(self, path: Path, endpoint: ChatEndpoint) -> None:
        self._path, self._endpoint = path, endpoint
        self._known = {line["question"]: line["answer"] for line in read_lines(path)}

    async def complete(self, body: Mapping[str, Any]) -> Any:
        """Return the answer to a chat. Raises EndpointError, OSError."""
        name = sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
        if name not in self._known:
            answer = await self._endpoint.complete(body)
            append_line(self._path, {"question": name, "answer": answer})
            self._known[name] = answer
        return self._known[name]

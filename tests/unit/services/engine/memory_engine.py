"""An engine whose models repeat what they are asked, and weights that need no files."""

import itertools
import threading
import time
from pathlib import Path

from services.engine.ports import Refusal, Say, WeightFiles
from tunery.work.engine import (
    FAILED,
    AnswerEnded,
    EngineModel,
    Question,
    Sampling,
    Spent,
    TextAdded,
)

BROKEN = "broken"
FOREVER = "for-ever"  # a question whose answer has no end
PAUSE_S = 0.001


def model(name: str) -> EngineModel:
    return EngineModel(name, f"/bases/{name}", "ab" * 32, 512)


def question(name: str, text: str = "one two") -> Question:
    return Question(model(name), ({"role": "user", "content": text},), Sampling())


class EchoModel:
    """Implements `LoadedModel`. stopped: an answer was given up by who asked."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self.closed = False

    def answer(self, question: Question, say: Say) -> None:
        words = str(question.prompt or question.messages[-1]["content"]).split()
        endless = itertools.repeat(FOREVER) if words == [FOREVER] else words
        for written, word in enumerate(endless, 1):
            if not say(TextAdded(word, spent=Spent(len(words), 0, written))):
                self.stopped.set()
                return
            time.sleep(PAUSE_S)
        say(AnswerEnded("stop", len(words), len(words)))

    def close(self) -> None:
        self.closed = True


class MemoryEngine:
    """Implements `ModelLoader` and `Weights`. loaded: all models that were loaded, in order."""

    def __init__(self) -> None:
        self.loaded: list[tuple[str, EchoModel]] = []

    async def fetch(self, model: EngineModel) -> WeightFiles:
        if model.base_id == BROKEN:
            raise Refusal(FAILED, "its files cannot be read")
        return WeightFiles(Path(model.base_path), Path(model.base_path), None, model.context_length)

    def load(self, files: WeightFiles) -> EchoModel:
        echo = EchoModel()
        self.loaded.append((files.base.name, echo))
        return echo

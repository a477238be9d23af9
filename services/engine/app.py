"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from pathlib import Path

from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.peft import PeftEngine
from services.engine.adapters.plain_weights import PlainWeights
from services.engine.adapters.weights import ConvertedWeights
from services.engine.counting import AnswerCounts
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.ports import ModelLoader, Weights
from services.engine.settings import EngineSettings
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load
from tunery.work.engine import SOCKET


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(EngineSettings)
    data_dir = runtime.settings.data_dir
    weights, engine = driver_of(settings, runtime.blobs, data_dir / "engine")
    models = LoadedModels(
        weights, engine, models_max=settings.models_max, answers_max=settings.answers_max
    )
    meter = AnswerMeter(data_dir / "answers")
    return (
        EngineHost(models, data_dir / "run" / SOCKET, meter, settings.tenant_questions_max),
        AnswerCounts(meter, runtime.sender, runtime.clock),
    )


def driver_of(settings: EngineSettings, blobs: Blobs, folder: Path) -> tuple[Weights, ModelLoader]:
    """What answers, and the files that it reads, by the settings."""
    match settings.driver:
        case "llama":
            return ConvertedWeights(blobs, folder, settings.converted_max), LlamaEngine(
                answers_max=settings.answers_max,
                context_tokens=settings.context_tokens,
                threads=settings.threads,
            )
        case "peft":
            return PlainWeights(blobs, folder, settings.converted_max), PeftEngine(
                context_tokens=settings.context_tokens, threads=settings.threads
            )

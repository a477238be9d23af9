"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence

from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.weights import ConvertedWeights
from services.engine.counting import AnswerCounts
from services.engine.host import EngineHost
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.settings import EngineSettings
from tunery.runtime.hosts.abstract import Host
from tunery.runtime.ports import Runtime
from tunery.runtime.settings import load
from tunery.work.engine import SOCKET


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(EngineSettings)
    data_dir = runtime.settings.data_dir
    weights = ConvertedWeights(runtime.blobs, data_dir / "engine", settings.converted_max)
    engine = LlamaEngine(
        answers_max=settings.answers_max,
        context_tokens=settings.context_tokens,
        threads=settings.threads,
    )
    models = LoadedModels(
        weights, engine, models_max=settings.models_max, answers_max=settings.answers_max
    )
    meter = AnswerMeter(data_dir / "answers")
    return (
        EngineHost(models, data_dir / "run" / SOCKET, meter, settings.tenant_questions_max),
        AnswerCounts(meter, runtime.sender, runtime.clock),
    )

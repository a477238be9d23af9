"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from pathlib import Path

from services.engine.adapters.inference_server import SERVERS
from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.peft import PeftEngine
from services.engine.adapters.plain_weights import PlainWeights, served_weights
from services.engine.adapters.served import ServedEngine
from services.engine.adapters.server_folders import ServerFolders
from services.engine.adapters.weights import ConvertedWeights
from services.engine.counting import AnswerCounts
from services.engine.host import EngineHost, QuestionLimits
from services.engine.loaded_models import LoadedModels
from services.engine.meter import AnswerMeter
from services.engine.ports import ModelLoader, Weights
from services.engine.reconciling import EngineReconciliation
from services.engine.settings import EngineSettings
from tunery.platform.blobs.encrypted import EncryptedBlobs
from tunery.platform.blobs.path_keys import HandedPathKeys
from tunery.platform.ports import Runtime
from tunery.platform.settings import load
from tunery.runtime.blobs.abstract import Blobs
from tunery.runtime.hosts.abstract import Host
from tunery.work.engine import SOCKET


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(EngineSettings)
    data_dir = runtime.settings.data_dir
    handed = HandedPathKeys()
    blobs = EncryptedBlobs(runtime.blobs, handed)
    weights, engine = driver_of(settings, blobs, data_dir / "engine")
    models = LoadedModels(
        weights,
        engine,
        models_max=settings.models_max,
        answers_max=settings.answers_max,
        tenant_answers_max=settings.tenant_answers_max,
    )
    meter = AnswerMeter(data_dir / "answers")
    hosts = (
        EngineHost(
            models,
            data_dir / "run" / SOCKET,
            meter,
            QuestionLimits(
                settings.questions_max,
                settings.tenant_questions_max,
                settings.wait_ms_max,
                settings.answer_ms_max,
            ),
            handed,
        ),
        AnswerCounts(meter, runtime.sender, runtime.clock),
    )
    if isinstance(engine, ServedEngine):
        return (*hosts, EngineReconciliation(engine, runtime.clock))
    return hosts


def driver_of(settings: EngineSettings, blobs: Blobs, folder: Path) -> tuple[Weights, ModelLoader]:
    """Return the engine of the configured driver, and the files that it reads."""
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
        case "vllm" | "sglang" as driver:
            own = folder / driver
            key = None if settings.server_key is None else settings.server_key.get_secret_value()
            engine = ServedEngine(
                [SERVERS[driver](url, key) for url in settings.server_urls],
                ServerFolders(own, settings.folder_names),
                context_tokens=settings.context_tokens,
            )
            return served_weights(driver, blobs, own, settings.converted_max), engine

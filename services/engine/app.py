"""Composition root: the only file of the service that names concrete parts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from services.engine.adapters.inference_server import SglangServer, VllmServer
from services.engine.adapters.llama import LlamaEngine
from services.engine.adapters.peft import PeftEngine
from services.engine.adapters.plain_weights import PlainWeights
from services.engine.adapters.served import ServedEngine
from services.engine.adapters.server_folders import ServerFolders
from services.engine.adapters.weights import ConvertedWeights, with_plain_scale
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

#: options of PEFT that servers refuse late, or compute otherwise than PEFT
VLLM_REFUSES: Final = (
    *("use_dora", "modules_to_save", "trainable_token_indices", "lora_bias"),
    *("alora_invocation_tokens", "use_qalora", "use_bdlora"),
)
SGLANG_REFUSES: Final = (*VLLM_REFUSES, "rank_pattern", "alpha_pattern")


async def build(runtime: Runtime) -> Sequence[Host]:
    """The hosts of the service, in the order in which they are stopped. Raises SettingsError."""
    settings = load(EngineSettings)
    data_dir = runtime.settings.data_dir
    handed = HandedPathKeys()
    blobs = EncryptedBlobs(runtime.blobs, handed)
    weights, engine = driver_of(settings, blobs, data_dir / "engine")
    models = LoadedModels(
        weights, engine, models_max=settings.models_max, answers_max=settings.answers_max
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
        case "vllm":
            own = folder / settings.driver
            weights = PlainWeights(blobs, own, settings.converted_max, VLLM_REFUSES)
            return weights, served_engine(VllmServer, settings, own)
        case "sglang":
            own = folder / settings.driver
            plain = PlainWeights(
                blobs, own, settings.converted_max, SGLANG_REFUSES, rewrite=with_plain_scale
            )
            return plain, served_engine(SglangServer, settings, own)


def served_engine(server: type[VllmServer], settings: EngineSettings, folder: Path) -> ServedEngine:
    """Servers of the operator. folder: of the adapters that they read."""
    key = None if settings.server_key is None else settings.server_key.get_secret_value()
    return ServedEngine(
        [server(url, key) for url in settings.server_urls],
        ServerFolders(folder, settings.folder_names),
        context_tokens=settings.context_tokens,
    )

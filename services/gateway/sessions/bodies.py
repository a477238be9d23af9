"""Bodies of the Tinker SDK's requests that are JSON.

Fields that the SDK has and Tunery does nothing with are taken and not looked at: newer SDKs add
some in each release.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StringConstraints

from services.gateway.web.domain.bodies import Id

NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
SEQ_MAX: Final = 2**31 - 1
SAMPLES_MAX: Final = 128
STOPS_MAX: Final = 16
TEXT_MAX: Final = 256
RANK_MAX: Final = 128
SavedName = Annotated[str, StringConstraints(strict=True, pattern=NAME)]
Path = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=512)]
Seq = Annotated[StrictInt, Field(ge=0, le=SEQ_MAX)]
Token = Annotated[StrictInt, Field(ge=0, le=SEQ_MAX)]
Positive = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, le=1_000)]  # much larger ones overflow in float32
Decay = Annotated[float, Field(ge=0, lt=1)]
StopText = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_MAX)]


class SdkBody(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())


class ClientSessionRequest(SdkBody):
    """The SDK begins."""

    sdk_version: str = ""


class HeartbeatRequest(SdkBody):
    session_id: Id


class LoraBody(SdkBody):
    rank: Annotated[StrictInt, Field(ge=1, le=RANK_MAX)] = 32
    seed: Annotated[StrictInt, Field(ge=0, le=SEQ_MAX)] | None = None
    train_unembed: StrictBool = True
    train_mlp: StrictBool = True
    train_attn: StrictBool = True


class OptimizerBody(SdkBody):
    type: str = "adamw"


class CreateModelRequest(SdkBody):
    session_id: Id
    model_seq_id: Seq
    base_model: Id
    user_metadata: dict[str, Any] | None = None
    lora_config: LoraBody | None = None
    optimizer_config: OptimizerBody = OptimizerBody()


class ModelRequest(SdkBody):
    model_id: Id


class AdamBody(SdkBody):
    learning_rate: Rate = 1e-4
    beta1: Decay = 0.9
    beta2: Decay = 0.95
    eps: Annotated[float, Field(ge=1e-30, allow_inf_nan=False)] = 1e-12  # less is 0 in float32
    weight_decay: Rate = 0.0
    grad_clip_norm: Positive = 0.0


class StepRequest(SdkBody):
    model_id: Id
    seq_id: Seq
    adam_params: AdamBody


class SaveRequest(SdkBody):
    """`path`: name of what is saved; null: a sampler without a name."""

    model_id: Id
    seq_id: Seq
    path: SavedName | None = None


class LoadRequest(SdkBody):
    model_id: Id
    seq_id: Seq
    path: Path
    optimizer: StrictBool


class SamplerRequest(SdkBody):
    session_id: Id
    sampling_session_seq_id: Seq
    base_model: Id | None = None
    model_path: Path | None = None


class ChunkBody(SdkBody):
    type: str = "encoded_text"
    tokens: list[Token] = []


class PromptBody(SdkBody):
    chunks: list[ChunkBody]


class SamplingParams(SdkBody):
    max_tokens: Annotated[StrictInt, Field(ge=1)] | None = None
    seed: Annotated[StrictInt, Field(ge=0, le=2**53)] | None = None
    stop: (
        StopText
        | Annotated[list[Token], Field(max_length=STOPS_MAX)]
        | Annotated[list[StopText], Field(max_length=STOPS_MAX)]
        | None
    ) = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_k: Annotated[StrictInt, Field(ge=-1, le=SEQ_MAX)] = -1
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


class SampleRequest(SdkBody):
    sampling_session_id: Path
    seq_id: Seq
    num_samples: Annotated[StrictInt, Field(ge=1, le=SAMPLES_MAX)] = 1
    prompt: PromptBody
    sampling_params: SamplingParams
    prompt_logprobs: StrictBool | None = None
    topk_prompt_logprobs: StrictInt = 0
    topk_sample_logprobs: StrictInt = 0
    target_prompt_logprobs: Any = None


class FutureRequest(SdkBody):
    request_id: Path


class WeightsRequest(SdkBody):
    tinker_path: Path


SavedKind = Literal["weights", "sampler_weights"]

"""Settings of the engine."""

import os
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class EngineSettings(BaseSettings):
    """Environment `TUNERY_ENGINE_*`.

    driver: llama: llama.cpp in this process; peft: transformers and PEFT in fp32, the reference.
    models_max: base models and versions in memory at once; versions of one base share its weights.
    answers_max: that each of them writes at once; more wait.
    tenant_questions_max: of one tenant that are answered or wait; more are refused.
    context_tokens: of a question and its answer at most, also where the base model has more.
    threads: of each model; half of the machine's, because trainings run beside it.
    converted_max: files of models, in the form that the engine reads, that are kept.
    """

    model_config = SettingsConfigDict(env_prefix="TUNERY_ENGINE_", extra="ignore")

    driver: Literal["llama", "peft"] = "llama"
    models_max: int = Field(default=4, ge=1, le=64)
    answers_max: int = Field(default=4, ge=1, le=64)
    tenant_questions_max: int = Field(default=16, ge=1, le=64)
    context_tokens: int = Field(default=4_096, ge=128, le=131_072)
    threads: int = Field(default=max(1, (os.cpu_count() or 1) // 2), ge=1, le=256)
    converted_max: int = Field(default=64, ge=2, le=10_000)

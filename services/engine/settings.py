"""Settings of the engine."""

import ipaddress
import os

import httpx
from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.units import Ms
from tunery.work.engine_rows import Driver


class EngineSettings(BaseSettings):
    """Environment `TUNERY_ENGINE_*`."""

    model_config = SettingsConfigDict(env_prefix="TUNERY_ENGINE_", extra="ignore")

    # llama: llama.cpp in this process; peft: transformers and PEFT in fp32, the reference; vllm,
    # sglang: servers that the operator runs
    driver: Driver = "llama"
    # base models and versions in memory at once; versions of one base share its weights
    models_max: int = Field(default=4, ge=1, le=64)
    # answers that each model writes at once; more wait
    answers_max: int = Field(default=4, ge=1, le=64)
    # how many of these one tenant may have at once; not set: all
    tenant_answers_max: int | None = Field(default=None, ge=1, le=64)
    # questions of all tenants that are answered or wait, and of one tenant; more are refused
    questions_max: int = Field(default=1_024, ge=1, le=65_536)
    tenant_questions_max: int = Field(default=512, ge=1, le=65_536)
    # how long a question waits for its turn before it is refused
    wait_ms_max: Ms = Field(default=300_000, ge=1_000, le=3_600_000)
    # how long an answer may be written; it then ends with the finish reason `length`
    answer_ms_max: Ms = Field(default=600_000, ge=1_000, le=86_400_000)
    # largest size of a question and its answer, even if the base model allows more
    context_tokens: int = Field(default=4_096, ge=128, le=131_072)
    # threads of each model; half of the machine's, because trainings share the machine
    threads: int = Field(default=max(1, (os.cpu_count() or 1) // 2), ge=1, le=256)
    # files of models, in the form that the engine reads, that are kept
    converted_max: int = Field(default=64, ge=2, le=10_000)
    servers_anywhere: bool = False  # whether `servers` may be on other machines
    # URLs of vLLM or SGLang servers, with commas between; each serves one base model
    servers: str = "http://127.0.0.1:8000"
    server_key: SecretStr | None = None  # API key of all `servers`
    # what servers call folders of this machine, `here=there`, with commas between
    server_folders: str = ""

    @field_validator("servers")
    @classmethod
    def _are_here(cls, value: str, info: ValidationInfo) -> str:
        for url in _parts(value):
            try:
                parsed = httpx.URL(url)
            except httpx.InvalidURL as error:
                raise ValueError(f"{url} is no URL: {error}") from error
            if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
                raise ValueError(f"{url} is not http(s)://HOST:PORT")
            if not _is_this_machine(parsed.host) and not info.data.get("servers_anywhere"):
                raise ValueError(
                    f"{parsed.host} is another machine; allow it with "
                    "TUNERY_ENGINE_SERVERS_ANYWHERE=true"
                )
        return value

    @field_validator("server_folders")
    @classmethod
    def _are_pairs(cls, value: str) -> str:
        for pair in _parts(value):
            here, _, there = pair.partition("=")
            if not (here.startswith("/") and there.startswith("/")):
                raise ValueError(f"{pair!r} is not /HERE=/THERE")
        return value

    @property
    def server_urls(self) -> tuple[str, ...]:
        return tuple(url.rstrip("/") for url in _parts(self.servers))

    @property
    def folder_names(self) -> dict[str, str]:
        """Paths by which servers know folders of this machine, by local path."""
        pairs = (pair.partition("=") for pair in _parts(self.server_folders))
        return {here: there for here, _, there in pairs}


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

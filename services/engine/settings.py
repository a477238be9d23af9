"""Settings of the engine."""

import ipaddress
import os
from typing import Literal

import httpx
from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class EngineSettings(BaseSettings):
    """Environment `TUNERY_ENGINE_*`.

    driver: llama: llama.cpp in this process; peft: transformers and PEFT in fp32, the reference;
        vllm, sglang: servers that the operator runs.
    models_max: base models and versions in memory at once; versions of one base share its weights.
    answers_max: that each of them writes at once; more wait.
    tenant_questions_max: of one tenant that are answered or wait; more are refused.
    context_tokens: of a question and its answer at most, also where the base model has more.
    threads: of each model; half of the machine's, because trainings run beside it.
    converted_max: files of models, in the form that the engine reads, that are kept.
    servers: URLs of vLLM or SGLang servers, with commas between; each serves one base model.
    servers_anywhere: they may be on other machines; else only on this one.
    server_key: the API key of all of them.
    server_folders: what servers call folders of this machine, `here=there`, with commas between.
    """

    model_config = SettingsConfigDict(env_prefix="TUNERY_ENGINE_", extra="ignore")

    driver: Literal["llama", "peft", "vllm", "sglang"] = "llama"
    models_max: int = Field(default=4, ge=1, le=64)
    answers_max: int = Field(default=4, ge=1, le=64)
    tenant_questions_max: int = Field(default=16, ge=1, le=64)
    context_tokens: int = Field(default=4_096, ge=128, le=131_072)
    threads: int = Field(default=max(1, (os.cpu_count() or 1) // 2), ge=1, le=256)
    converted_max: int = Field(default=64, ge=2, le=10_000)
    servers_anywhere: bool = False
    servers: str = "http://127.0.0.1:8000"
    server_key: SecretStr | None = None
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
        """What servers call folders of this machine."""
        pairs = (pair.partition("=") for pair in _parts(self.server_folders))
        return {here: there for here, _, there in pairs}


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

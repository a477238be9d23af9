"""Authentication between a process and Kafka: SASL and TLS.

Read from the environment as `TUNERY_KAFKA_…`, and checked as a whole before anything connects.
"""

import asyncio
import ssl
import time
from pathlib import Path
from typing import Any, Final, Literal, Self, TypeAlias

from aiokafka.abc import AbstractTokenProvider
from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

PREFIX: Final = "TUNERY_"
Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
OAUTH: Final = "OAUTHBEARER"
TOKEN_S: Final = 60  # how long librdkafka keeps a token before it reads the file again
_PASSWORD: Final = ("kafka_username", "kafka_password")
_TLS: Final = ("kafka_ca_file", "kafka_certificate_file", "kafka_key_file", "kafka_key_password")


class KafkaLogin(BaseSettings):
    """Credentials of this process. Without any, connections are anonymous, over plain TCP."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore")

    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    kafka_sasl_mechanism: Mechanism | None = None
    kafka_username: str | None = None
    kafka_password: str | None = Field(default=None, repr=False)
    # file of an OAuth token; it is read for every connection, so it may be renewed
    kafka_token_file: Path | None = None
    # certificates that Kafka's may be signed by; without it those of the system
    kafka_ca_file: Path | None = None
    # kafka_certificate_file, kafka_key_file: PEM files of this process, where Kafka asks for a
    # certificate
    kafka_certificate_file: Path | None = None
    kafka_key_file: Path | None = None
    kafka_key_password: str | None = Field(default=None, repr=False)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if problems := [*self._sasl_problems(), *self._tls_problems()]:
            raise ValueError("; ".join(problems))
        return self

    def _sasl_problems(self) -> list[str]:
        protocol, mechanism = self.kafka_security_protocol, self.kafka_sasl_mechanism
        names = ("kafka_sasl_mechanism", *_PASSWORD, "kafka_token_file")
        if not protocol.startswith("SASL_"):
            return [
                f"{_variable(name)} is set, but {_variable('kafka_security_protocol')} is "
                f"{protocol}; set that to SASL_SSL or SASL_PLAINTEXT"
                for name in names
                if getattr(self, name) is not None
            ]
        if mechanism is None:
            return [f"{_variable('kafka_sasl_mechanism')} is not set, and {protocol} needs it"]
        needed = ("kafka_token_file",) if mechanism == OAUTH else _PASSWORD
        absent = [f"{_variable(name)} is not set" for name in needed if not getattr(self, name)]
        return [f"{problem}, and {mechanism} needs it" for problem in absent]

    def _tls_problems(self) -> list[str]:
        protocol = self.kafka_security_protocol
        if not protocol.endswith("SSL"):
            return [
                f"{_variable(name)} is set, but {_variable('kafka_security_protocol')} is "
                f"{protocol}; set that to SSL or SASL_SSL"
                for name in _TLS
                if getattr(self, name) is not None
            ]
        if (self.kafka_certificate_file is None) != (self.kafka_key_file is None):
            names = map(_variable, ("kafka_certificate_file", "kafka_key_file"))
            return [f"{' and '.join(names)} belong together; set both or neither"]
        try:
            self._tls()
        except (OSError, ValueError) as error:  # SSLError is an OSError
            return [f"the files of TLS cannot be used: {error}"]
        return []

    def _tls(self) -> ssl.SSLContext | None:
        """Raises OSError for files that are missing, are not PEM, or do not fit together."""
        if not self.kafka_security_protocol.endswith("SSL"):
            return None
        context = ssl.create_default_context(cafile=self.kafka_ca_file)
        if self.kafka_certificate_file is not None:
            context.load_cert_chain(
                self.kafka_certificate_file,
                self.kafka_key_file,
                password=self.kafka_key_password or "",  # never prompt at a terminal
            )
        return context

    def certificates(self) -> dict[str, Path]:
        """Files with certificates, by the settings that name them."""
        names = ("kafka_ca_file", "kafka_certificate_file")
        return {name: file for name in names if (file := getattr(self, name)) is not None}

    def client_options(self) -> dict[str, Any]:
        """Options of aiokafka's clients. Raises OSError when a file can no longer be read."""
        options: dict[str, Any] = {"security_protocol": self.kafka_security_protocol}
        if (context := self._tls()) is not None:
            options["ssl_context"] = context
        if self.kafka_sasl_mechanism is not None:
            options["sasl_mechanism"] = self.kafka_sasl_mechanism
        if self.kafka_token_file is not None:
            options["sasl_oauth_token_provider"] = TokenFile(self.kafka_token_file)
        elif self.kafka_username is not None:
            options["sasl_plain_username"] = self.kafka_username
            options["sasl_plain_password"] = self.kafka_password
        return options

    def librdkafka_options(self) -> dict[str, Any]:
        """Options of confluent-kafka's clients, which read certificates themselves."""
        options: dict[str, Any] = {
            "security.protocol": self.kafka_security_protocol,
            "sasl.mechanism": self.kafka_sasl_mechanism,
            "sasl.username": self.kafka_username,
            "sasl.password": self.kafka_password,
            "ssl.ca.location": self.kafka_ca_file,
            "ssl.certificate.location": self.kafka_certificate_file,
            "ssl.key.location": self.kafka_key_file,
            "ssl.key.password": self.kafka_key_password,
        }
        filled = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in options.items()
            if value is not None
        }
        if (file := self.kafka_token_file) is not None:

            def token(_config: str) -> tuple[str, float]:
                return file.read_text(encoding="ascii").strip(), time.time() + TOKEN_S

            filled["oauth_cb"] = token
        return filled


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """A token of OAuth in a file, which something else renews (Kubernetes, an agent of Vault)."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def token(self) -> str:
        """The token as it is now. Raises OSError."""
        return (await asyncio.to_thread(self._path.read_text, encoding="ascii")).strip()


def _variable(field: str) -> str:
    return f"{PREFIX}{field.upper()}"

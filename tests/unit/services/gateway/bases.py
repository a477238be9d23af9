"""The base model of the gateway's tests."""

from schemas.model import Base

BASE = Base(
    base_id="tiny-llama",
    sha256="ab" * 32,
    path="/bases/tiny-llama",
    parameters=3_000_000,
    context_length=2_048,
    family="llama",
    licence="apache-2.0",
    hidden_size=64,
)

"""Engines that answer questions: what each version can do here, and what it cannot."""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

Driver: TypeAlias = Literal["llama", "peft", "vllm", "sglang"]


class CapabilityRow(NamedTuple):
    """What an engine does with models of Tunery."""

    name: str  # as its makers write it
    version: str  # oldest version that is known to do it
    proof: str  # where it was run like this
    adapters_refused: tuple[str, ...]  # options of PEFT that it refuses, or computes otherwise
    embeds: bool  # whether it makes embeddings
    schema_beside_tools: bool  # whether an answer may be calls of tools or JSON of a schema


_OF_SERVERS: Final = (
    *("use_dora", "modules_to_save", "trainable_token_indices", "lora_bias"),
    *("alora_invocation_tokens", "use_qalora", "use_bdlora"),
)
ENGINES: Final[Mapping[Driver, CapabilityRow]] = {
    "llama": CapabilityRow(
        "llama.cpp",
        "2026.10",
        "on CPUs; never ran on a GPU",
        ("use_dora", "modules_to_save", "alpha_pattern", "trainable_token_indices"),
        embeds=True,
        schema_beside_tools=True,
    ),
    "peft": CapabilityRow(
        "PEFT", "0.21", "on CPUs, as the reference", (), embeds=False, schema_beside_tools=True
    ),
    "vllm": CapabilityRow(
        "vLLM",
        "0.32",
        "on a CPU (`make test-vllm`); never ran on a GPU",
        _OF_SERVERS,
        embeds=False,
        schema_beside_tools=False,
    ),
    "sglang": CapabilityRow(
        "SGLang",
        "0.5.23",
        "never ran: only against a server of the tests with its routes",
        (*_OF_SERVERS, "rank_pattern", "alpha_pattern"),
        embeds=False,
        schema_beside_tools=False,
    ),
}

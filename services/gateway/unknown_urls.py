"""Messages for URLs of OpenAI's API that do not exist here: what to use instead."""

from collections.abc import Mapping
from typing import Final

SERVING: Final = (
    "Models answer POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/embeddings. "
    "GET /v1/models/{id}/adapter returns the adapter of a model, for another inference server, "
    "such as vLLM."
)
TEXT_ONLY: Final = "Tunery trains models of text, and has no other part of OpenAI's API."
OTHERS: Final = (
    *("assistants", "audio", "containers", "conversations", "images", "moderations", "realtime"),
    *("threads", "vector_stores", "videos"),
)
#: beginning of a path → message; the first match counts
ALTERNATIVES: Final[Mapping[str, str]] = {
    "/v1/chat/": SERVING,
    "/v1/responses/": ("Answers are not stored. Keep the answer of POST /v1/responses."),
    "/v1/fine-tunes": "OpenAI replaced that API in 2023. Use /v1/fine_tuning/jobs.",
    "/v1/evals": (
        "Custom evaluations are not supported. Every job is compared with its base model: see "
        "`gate` of GET /v1/fine_tuning/jobs/{id}, and GET /v1/fine_tuning/jobs/{id}/answers."
    ),
    "/v1/organization/": (
        "Organizations are tenants here. Operators manage them with /v1/tenants, tenants manage "
        "their API keys with /v1/keys; GET /v1/fine_tuning/jobs/{id}/cost returns a job's cost."
    ),
    **{f"/v1/{name}": TEXT_ONLY for name in OTHERS},
}

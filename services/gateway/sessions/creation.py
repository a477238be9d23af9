"""Submits the job that a session is."""

from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from schemas.account import Lane
from schemas.ids import SESSION as SESSION_PREFIX
from schemas.session import KEPT_MS, SessionTerms
from schemas.units import DAY_MS, Ms, Tokens
from services.gateway.jobs.deps import JobDeps
from services.gateway.jobs.domain.bodies import EstimateRequest
from services.gateway.jobs.domain.resolve import Resolved
from services.gateway.jobs.submission import Intent, Submissions
from services.gateway.sessions.bodies import CreateModelRequest, LoraBody
from services.gateway.views.tables.jobs import JobRow
from services.gateway.web.deps import Principal
from services.gateway.web.domain.bodies import Body
from services.gateway.web.domain.errors import UNSUPPORTED, invalid
from tunery.plan.estimate import without_rows
from tunery.work.session import ALPHA
from tunery.work.spec import ALL_LINEAR

ATTENTION: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP: Final = ("gate_proj", "up_proj", "down_proj")
LENGTH: Final = 2_048  # tokens of a row, where the client sets none
CHECKPOINT_STEPS: Final = 20  # steps of the optimizer between checkpoints, likewise
MINUTE_MS: Final[Ms] = 60_000
# What a session may use where its client sets nothing, by plan: minutes on its slot, and tokens.
USUAL: Final[dict[Lane, tuple[int, Tokens]]] = {
    "premium": (240, 100_000_000),
    "standard": (120, 20_000_000),
    "free": (30, 2_000_000),
}
MINUTES_MAX: Final = 7 * 24 * 60
TOKENS_MAX: Final = 10**12
# Keys of `user_metadata`, and the least and the most that each may be.
BOUNDS: Final = {
    "tunery_max_minutes": (1, MINUTES_MAX),
    "tunery_max_tokens": (1, TOKENS_MAX),
    "tunery_max_length": (64, 131_072),
    "tunery_checkpoint_steps": (1, 10_000),
    "tunery_keep_days": (1, 3_650),
}


class CreatedModel(Body):
    """Key by which a repeated request is recognised."""

    client: str
    number: int
    model: str
    rank: int
    seed: int | None
    layers: str | list[str]


async def create_session(
    deps: JobDeps,
    submissions: Submissions,
    caller: Principal,
    asked: CreateModelRequest,
    lane: Lane,
    name: str,
) -> JobRow:
    """Submit the job of a session, or return the one that this request repeats. Raises ApiError.

    name: what the client calls the request, by which a repeated one is known
    """
    if asked.lora_config is None:
        text = "all weights are not trained in a session: give a lora_config"
        raise invalid(text, "lora_config", UNSUPPORTED)
    if asked.optimizer_config.type != "adamw":
        text = f"{asked.optimizer_config.type!r} is not served; use adamw"
        raise invalid(text, "optimizer_config.type", UNSUPPORTED)
    lora = asked.lora_config
    layers = _layers(lora)
    usual_minutes, usual_tokens = USUAL[lane]
    metadata = asked.user_metadata or {}
    body = EstimateRequest(
        model=asked.base_model,
        seed=lora.seed,
        lora=lora_of(lora.rank, layers),
        training={
            "max_length": _bounded(metadata, "tunery_max_length", LENGTH),
            "checkpoint_every_steps": _bounded(
                metadata, "tunery_checkpoint_steps", CHECKPOINT_STEPS
            ),
            "batch_size": 1,
            "scheduler": "constant",
        },
    )
    session_id = deps.fresh(SESSION_PREFIX)
    resolved = await submissions.resolve(caller, body, session_id)
    spec = structs.replace(
        resolved.spec,
        auto=(),
        configuration="",
        pace=None,
        benchmarks=(),
        looks_ppm=(),
        session=SessionTerms(
            client=asked.session_id,
            max_tokens=_bounded(metadata, "tunery_max_tokens", usual_tokens),
            max_ms=MINUTE_MS * _bounded(metadata, "tunery_max_minutes", usual_minutes),
            kept_ms=DAY_MS * _bounded(metadata, "tunery_keep_days", KEPT_MS // DAY_MS),
        ),
    )
    known = CreatedModel(
        client=asked.session_id,
        number=asked.model_seq_id,
        model=asked.base_model,
        rank=lora.rank,
        seed=lora.seed,
        layers=layers,
    )
    intent = Intent(name, retried=False)
    submitted = await submissions.decide(
        caller, session_id, Resolved(spec, without_rows(spec.base)), known, intent
    )
    return submitted.row


def lora_of(rank: int, layers: str | Sequence[str]) -> dict[str, Any]:
    """Return the settings of a session's adapter as a request for a job has them."""
    modules = layers if isinstance(layers, str) else list(layers) or ALL_LINEAR
    return {"rank": rank, "alpha": ALPHA, "dropout": 0.0, "target_modules": modules}


def _layers(lora: LoraBody) -> str | list[str]:
    """The layers that the adapter is on, whatever the base calls them where it is on all.

    That of the logits has none here.
    """
    if lora.train_attn and lora.train_mlp:
        return ALL_LINEAR
    chosen = [*(ATTENTION if lora.train_attn else ()), *(MLP if lora.train_mlp else ())]
    if not chosen:
        text = "an adapter of the unembedding alone is not served: train attention, MLP or both"
        raise invalid(text, "lora_config", UNSUPPORTED)
    return chosen


def _bounded(metadata: dict[str, Any], name: str, usual: int) -> int:
    """A whole number of the client's metadata, which may be text. Raises ApiError 400."""
    least, most = BOUNDS[name]
    try:
        value = int(metadata.get(name, usual))
    except (TypeError, ValueError):
        value = least - 1
    if not least <= value <= most:
        text = f"must be a whole number from {least} to {most}"
        raise invalid(text, f"user_metadata.{name}")
    return value

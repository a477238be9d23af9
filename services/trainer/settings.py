"""Settings of one node, for its operator."""

import os
import socket
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from schemas.node import LABEL
from schemas.streams import NODE_PREFIX, node_of
from tunery.platform.settings import SettingsError
from tunery.work.questions import CALLS_MAX

LABEL_OR_NONE: Final = rf"^({LABEL})?$"
LABELS: Final = rf"^({LABEL}(,{LABEL}){{0,7}})?$"
MODULE_OR_NONE: Final = r"^([a-z_]+(\.[a-z_]+)*)?$"
INTERFACE_OR_NONE: Final = r"^[A-Za-z0-9_.:@-]{0,15}$"
SLOTS_MAX: Final = 64
STOP_MS_MAX: Final = 55_000  # the agent checkpoints what runs before it leaves


class TrainerSettings(BaseSettings):
    """Environment: `TUNERY_NODE_ID`, `TUNERY_NODE_POOL`, `TUNERY_NODE_SLOTS`, …"""

    model_config = SettingsConfigDict(env_prefix="TUNERY_NODE_")

    id: str = Field(default_factory=lambda: f"node-{socket.gethostname()}")
    pool: str = "default"
    # With these an agent without keys gets them, once (`tunery node enrol`).
    token: str | None = Field(default=None, min_length=1, max_length=256, repr=False)
    token_file: Path | None = None
    gateway_url: str | None = Field(default=None, pattern="^https?://")
    gateway_plain: bool = False  # a token may be sent over HTTP to another machine
    slots: int = Field(default=1, ge=1, le=SLOTS_MAX)  # not set: one for each device
    disk_bytes_min: int = Field(default=1 << 30, ge=0)  # less is left: no new leases
    accelerator: str = Field(default="", pattern=LABEL_OR_NONE)
    spot: bool = False
    reserved: bool = False  # it is paid for in any case
    taints: str = Field(default="", pattern=LABELS)  # like "research,big-memory"
    domain: str = Field(default="", pattern=LABEL_OR_NONE)  # domain of its fabric
    work_dir: Path | None = None
    threads: int = Field(default_factory=lambda: os.cpu_count() or 1, ge=1)
    warm: bool = False  # the libraries of work are loaded at the start, not with the first lease
    # How many of the bundled questions and prompts an evaluation asks; None: all. Below 200
    # questions the gate decides nothing about general skills.
    gate_questions: int | None = Field(default=None, ge=1)
    gate_prompts: int | None = Field(default=None, ge=0)
    heartbeat_ms: int = Field(default=1_000, ge=100, le=10_000)
    drain_grace_ms: int = Field(default=25_000, ge=1_000, le=STOP_MS_MAX // 2)
    # The metadata server that is asked whether this machine is taken away; it implies nothing else.
    notices: Literal["aws", "gcp"] | None = None
    notices_url: str = ""  # server to ask in place of the cloud's own
    notices_poll_ms: int = Field(default=2_000, ge=10, le=30_000)
    health_poll_ms: int = Field(default=2_000, ge=10, le=30_000)
    # An endpoint of OpenAI's form, up to /v1, which gives scores for graders; None: there is none.
    score_url: str | None = Field(default=None, pattern="^https?://")
    score_key: SecretStr | None = None  # key that is sent to `score_url`
    # largest number of different questions of one job
    score_calls_max: int = Field(default=CALLS_MAX, ge=1)
    # model of `score_url` that compares answers
    judge_model: str | None = Field(default=None, min_length=1, max_length=200)
    # labelled pairs that qualify the judge, one JSON object per line
    judge_pairs: Path | None = None
    # model of `score_url` that judges harm and refusals
    guard_model: str | None = Field(default=None, min_length=1, max_length=200)
    score_timeout_s: float = Field(default=60, gt=0, le=120)  # limit of one try
    # What a replica of a serving pool is started with, as `python -m`; empty: none is started.
    serve_module: str = Field(default="", pattern=MODULE_OR_NONE)
    serve_host: str = "127.0.0.1"  # where the agent of a replica listens for gateways
    serve_as: str = ""  # how gateways reach `serve_host`; empty: by that name
    # Interface of a network of trusted nodes: ranks of a lease on several nodes reach each other
    # there, not encrypted. Empty: this node is in no such lease.
    fabric: str = Field(default="", pattern=INTERFACE_OR_NONE)


def check_keys(node_id: str, sender: str) -> None:
    """Raise SettingsError for command keys of another node. sender: empty: there are no keys."""
    if sender and node_of(sender) != node_id:
        raise SettingsError(
            f"TUNERY_COMMAND_KEYS is of {sender}, and this is the node {node_id}: "
            f"`tunery kafka keys {NODE_PREFIX}{node_id}` prints its own"
        )

"""Every hyper-parameter that a request may name: its range, its default and why that.

The table of `docs/reference/hyperparameters.md` is this one; a test compares them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias, get_args

from schemas.training import EngineName, LossType, MethodName, OptimizerName
from schemas.units import PPB, PPM
from tunery.plan.methods import SMOOTHED
from tunery.work.spec import ALL_LINEAR

Number: TypeAlias = int | float
Kind: TypeAlias = Literal["whole", "number", "choice", "flag", "layers", "names", "pattern"]
LAYERS_MAX: Final = 32
OF_THE_BASE: Final = "router_aux_loss_ppm"  # its default is in the base's own configuration
LAYER: Final = re.compile(r"[A-Za-z0-9_.]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One hyper-parameter of a request."""

    field: str  # name of the field of `HyperParameters` that it sets
    kind: Kind
    default: Number | str | None  # default value; None: the rule in `source` computes it
    source: str  # origin of the default
    # low, high: range of a number, both included
    low: Number = 0
    high: Number = 0
    choices: tuple[str, ...] = ()  # allowed words
    # training methods that have this hyper-parameter; empty: all
    methods: tuple[MethodName, ...] = ()

    def allows(self, value: Any) -> bool:
        """Return whether a value has the right type and range. Not for "auto" or null."""
        match self.kind:
            case "choice":
                return value in self.choices
            case "flag":
                return isinstance(value, bool)
            case "layers":
                return value == ALL_LINEAR or (_are_names(value) and len(value) > 0)
            case "names":
                return _are_names(value)
            case "pattern":
                return (
                    isinstance(value, dict)
                    and len(value) <= LAYERS_MAX
                    and all(isinstance(name, str) and LAYER.fullmatch(name) for name in value)
                    and all(self._is_number(number) for number in value.values())
                )
            case "whole" | "number":
                return self._is_number(value)

    def recorded(self, value: Any) -> Any:
        """Return the value for the log; for a default without one, zero or the first choice.

        None: whoever trains knows the default.
        """
        if self.field == OF_THE_BASE and value is None:
            return None
        match self.kind:
            case "whole":
                return int(value or 0)
            case "number":
                return round(float(value or 0) * self.unit)
            case "choice":
                return value or self.choices[0]
            case "flag":
                return value is True or value == "true"
            case "layers" | "names":
                return () if isinstance(value, str) else tuple(sorted({*value}))
            case "pattern":
                return tuple(sorted(value.items()))

    def shown(self, value: Any) -> Any:
        """Return the value that a request has for one of the log."""
        if value is None:
            return "auto"
        match self.kind:
            case "whole" | "choice" | "flag":
                return value
            case "number":
                return value / self.unit
            case "layers":
                return list(value) or ALL_LINEAR
            case "names":
                return list(value)
            case "pattern":
                return dict(value)

    @property
    def unit(self) -> int:
        """The integer that the log has for 1.0."""
        return PPB if self.field.endswith("_ppb") else PPM

    def _is_number(self, value: Any) -> bool:
        """Return whether a value is a number in range. Never use float(): JSON has larger
        numbers.
        """
        whole = isinstance(value, int) and not isinstance(value, bool)
        fits = whole or (isinstance(value, float) and self.kind == "number")
        return fits and bool(self.low <= value <= self.high)


def _are_names(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) <= LAYERS_MAX
        and all(isinstance(name, str) and LAYER.fullmatch(name) for name in value)
    )


def _whole(field: str, low: int, high: int, default: int | None, source: str) -> Knob:
    return Knob(field=field, kind="whole", low=low, high=high, default=default, source=source)


def _number(field: str, low: Number, high: Number, default: Number | None, source: str) -> Knob:
    return Knob(field=field, kind="number", low=low, high=high, default=default, source=source)


def _choice(field: str, choices: tuple[str, ...], default: str | None, source: str) -> Knob:
    return Knob(field=field, kind="choice", choices=choices, default=default, source=source)


def _flag(field: str, source: str, *, default: str | None = "false") -> Knob:
    return Knob(field=field, kind="flag", default=default, source=source)


def _pattern(field: str, high: int, source: str) -> Knob:
    return Knob(field=field, kind="pattern", low=1, high=high, default="{}", source=source)


def _label_weight(field: str, label: str) -> Knob:
    return Knob(
        field=field,
        kind="number",
        low=0,
        high=100,
        default=1,
        source=f"of `kto`: answers with the label {label}; "
        "weight times number should be about equal for both labels (KTO's paper)",
        methods=("kto",),
    )


# What an adapter is made of, and the values that say nothing where there is none.
ADAPTER_KNOBS: Final[Mapping[str, tuple[Any, ...]]] = {
    "rank": (),
    "alpha": (),
    "dropout": (0,),
    "target_modules": (ALL_LINEAR,),
    "modules_to_save": ([],),
    "rank_pattern": ({},),
    "alpha_pattern": ({},),
    "rslora": (False,),
    "dora": (False,),
    "lora_plus_ratio": (1,),
}
KNOBS: Final[Mapping[str, Knob]] = {
    "n_epochs": _whole(
        "n_epochs", 1, 50, None, "3 to 10, so that there are 100 steps; 1 from 5 M tokens on"
    ),
    "max_steps": _whole("max_steps", 0, 10_000_000, 0, "0: all steps of the epochs"),
    "batch_size": _whole(
        "batch_size", 1, 256, None, "packed rows of a step: 64 steps an epoch, 1 to 16"
    ),
    "accumulation": _whole(
        "accumulation",
        1,
        256,
        None,
        "micro-batches of a step; as the memory of a slot allows; divides `batch_size`",
    ),
    "learning_rate": _number(
        "learning_rate_ppb",
        1e-7,
        0.1,
        None,
        "by family and width (Tinker cookbook), ×1.5 under 100 steps; a twentieth "
        "for preferences, a fifth for `orpo`, half for `reward`; for `full` a tenth, for any "
        "number of steps",
    ),
    "learning_rate_multiplier": _number(
        "learning_rate_ppb",
        1e-6,
        1_000,
        1,
        "OpenAI's: of the default rate, which stays at most 0.1",
    ),
    "scheduler": _choice(
        "scheduler",
        ("linear", "cosine", "constant", "wsd"),
        "linear",
        "`wsd`: constant, then down over the last tenth (MiniCPM)",
    ),
    "warmup_ratio": _number("warmup_ppm", 0, 0.9, 0.05, "3 to 10 % is usual for LoRA"),
    "weight_decay": _number("weight_decay_ppm", 0, 1, 0, "adapters are small"),
    "optimizer": _choice(
        "optimizer",
        get_args(OptimizerName),
        "adamw",
        "`adamw_8bit`: moments in 2 bytes a weight instead of 8 (bitsandbytes); `muon`: for "
        "matrices, in 4 bytes, `adamw` for all else; both have run on processors only",
    ),
    "max_grad_norm": _number(
        "grad_norm_max_ppm", 0, 1_000, 1, "TRL's and axolotl's; 0: gradients are not clipped"
    ),
    "adaptation": _choice(
        "adaptation",
        ("lora", "qlora", "full"),
        "lora",
        "`qlora`: the base in four bits (NF4); `full`: every weight, no adapter",
    ),
    "rank": _whole("rank", 1, 256, 16, "enough for up to some 10,000 rows (LoRA without regret)"),
    "alpha": _whole("alpha", 1, 1024, None, "twice the rank"),
    "dropout": _number(
        "dropout_ppm", 0, 0.9, 0.05, "QLoRA's for models up to 13B; 0 for preferences, as TRL's"
    ),
    "target_modules": Knob(
        field="target_modules",
        kind="layers",
        default=ALL_LINEAR,
        source="LoRA without regret; or a list of names such as `q_proj`, `experts.down_proj`",
    ),
    "rank_pattern": _pattern("rank_pattern", 256, '`rank` for all; `{"q_proj": 32}` for some'),
    "alpha_pattern": _pattern("alpha_pattern", 1024, '`alpha` for all; `{"q_proj": 64}` for some'),
    "modules_to_save": Knob(
        field="modules_to_save",
        kind="names",
        default="[]",
        source='LoRA learns enough without; `["lm_head"]` trains the output layer as a whole',
    ),
    "rslora": _flag("rslora", "divides by √rank, for large ranks (rsLoRA)"),
    "dora": _flag("dora", "learns length and direction apart; slower (DoRA)"),
    "lora_plus_ratio": _number("lora_plus_ppm", 1, 64, 1, "rate of B by that of A; 16 is LoRA+'s"),
    "neftune_alpha": _number("neftune_ppm", 0, 100, 0, "noise on embeddings; NEFTune takes 5"),
    "max_length": _whole(
        "max_length",
        64,
        131_072,
        None,
        "512 (2,048 on an accelerator), doubled for longer rows up to 2,048 (8,192)",
    ),
    "precision": _choice(
        "precision",
        ("auto", "bf16", "fp32", "fp8"),
        "auto",
        "bf16 where the device multiplies it; `fp8` multiplies the matrices of decoder layers in "
        "float8, and has run emulated on processors only",
    ),
    "packing": _flag(
        "packing",
        "faster; `false` where the proof of a base says that documents of a row see each other",
        default=None,
    ),
    "train_on_prompts": _flag("train_on_prompts", "the loss counts answers only, as TRL's does"),
    "recompute": _flag(
        "recompute",
        "less memory for about 1.4 × the time (gradient checkpointing): where no device has the "
        "memory for a row without it",
        default=None,
    ),
    "engine": _choice(
        "engine",
        get_args(EngineName),
        None,
        "one slot: `single`; several: `fsdp2`; `deepspeed` where it is named",
    ),
    "tensor_parallel": _whole(
        "tensor_parallel",
        1,
        8,
        1,
        "slots that compute each row together, each with a part of every matrix; it never ran on "
        "GPUs",
    ),
    "context_parallel": _whole(
        "context_parallel",
        1,
        8,
        1,
        "slots that compute each row together, each with a part of its tokens; it never ran on "
        "GPUs",
    ),
    "shard_weights": _flag(
        "shard_weights",
        "each of several slots keeps a share of the weights: with `full`, and where a slot has too "
        "little memory for a copy of the base",
        default=None,
    ),
    "offload": _flag(
        "offload",
        "weights stay in the machine's memory and are copied layer by layer: where nothing else "
        "is enough",
        default=None,
    ),
    "eval_every_steps": _whole(
        "eval_every_steps", 0, 10_000, 0, "0: validation rows are scored at each epoch's end only"
    ),
    "sample_every_steps": _whole(
        "sample_every_steps", 0, 10_000, 0, "0: `eval.prompts` are answered after the training only"
    ),
    "best_checkpoint": _flag("best_checkpoint", "the adapter of the last step is published"),
    "early_stopping_patience": _whole(
        "early_stopping_patience", 0, 100, 0, "evaluations without improvement; 0: it never stops"
    ),
    "stop_if_nothing_learnt": _flag(
        "stop_if_nothing_learnt",
        "a warning says so; `true`: the training fails with `nothing_learnt` once all rewards of "
        "20 steps in a row are equal, or after 60 steps (a fifth of a long training) without the "
        "loss falling by 2 %",
    ),
    "threads": _whole("threads", 1, 64, None, "2 of a CPU, 4 beside an accelerator"),
    "checkpoint_every_steps": _whole(
        "checkpoint_every_steps", 1, 10_000, 20, "at most 20 steps are lost"
    ),
    "checkpoint_every_ms": _whole(
        "checkpoint_every_ms", 1_000, 600_000, 600_000, "at most 10 minutes are lost"
    ),
    "checkpoint_share": _number(
        "checkpoint_share_ppm", 0, 0.5, None, "0.02 of the time; 0 where the steps are given"
    ),
    "checkpoint_each_epoch": _flag(
        "checkpoint_each_epoch",
        "`true` for adapters: each epoch ends with one, whose name answers chats; `false` for all "
        "weights, which are large",
        default=None,
    ),
    "keep_checkpoints": _whole("keep_checkpoints", 1, 20, 3, "one may turn out to be damaged"),
    "beta": Knob(
        field="beta_ppm",
        kind="number",
        low=0.001,
        high=100,
        default=None,
        source="0.1 (OpenAI's and TRL's; of `dpo` and `kto` a larger one stays closer to the "
        "base); 2 for `simpo` (its paper's); 0.04 for `reinforcement` (GRPO's paper's)",
        methods=("dpo", "simpo", "orpo", "cpo", "kto", "reinforcement"),
    ),
    "loss_type": Knob(
        field="loss_type",
        kind="choice",
        default="sigmoid",
        source="of `dpo`: the loss of the paper; the names are TRL's",
        choices=get_args(LossType),
        methods=("dpo",),
    ),
    "label_smoothing": Knob(
        field="label_smoothing_ppm",
        kind="number",
        low=0,
        high=0.49,
        default=0,
        source="share of pairs that may be the wrong way round; with "
        f"{', '.join(f'`{name}`' for name in SMOOTHED)} of `dpo`, `simpo`, `cpo`",
        methods=("dpo", "simpo", "cpo"),
    ),
    "gamma": Knob(
        field="gamma_ppm",
        kind="number",
        low=0,
        high=100,
        default=1,
        source="of `simpo`: how far ahead the preferred answer is to be; its paper's",
        methods=("simpo",),
    ),
    "desirable_weight": _label_weight("desirable_ppm", "true"),
    "undesirable_weight": _label_weight("undesirable_ppm", "false"),
    "num_generations": replace(
        _whole("num_generations", 2, 64, 8, "of `reinforcement`: answers to each prompt; TRL's"),
        methods=("reinforcement",),
    ),
    "max_completion_length": replace(
        _whole("max_completion_length", 1, 4_096, 256, "of `reinforcement`: tokens of one; TRL's"),
        methods=("reinforcement",),
    ),
    "temperature": replace(
        _number("temperature_ppm", 0.1, 2, 1, "of `reinforcement`: how different they are; TRL's"),
        methods=("reinforcement",),
    ),
    "router_aux_loss_coef": replace(
        _number(
            OF_THE_BASE,
            0,
            10,
            None,
            "of a mixture: how much of the loss that spreads tokens evenly over experts is added; "
            "the base's own, as TRL's; 0 for others",
        ),
        methods=("supervised", "dpo", "simpo", "orpo", "cpo", "kto", "reinforcement"),
    ),
    "center_rewards_coefficient": replace(
        _number(
            "center_rewards_ppm",
            0,
            10,
            0,
            "of `reward`: holds the rewards of a pair to a sum of 0; 0.01 is usual (TRL's name)",
        ),
        methods=("reward",),
    ),
}


def table() -> str:
    """All of them as the rows of a Markdown table."""
    return "\n".join(
        f"| `{name}` | {_range(knob)} | {_default(knob)} | {knob.source} |"
        for name, knob in KNOBS.items()
    )


def _range(knob: Knob) -> str:
    match knob.kind:
        case "choice":
            return ", ".join(f"`{choice}`" for choice in knob.choices)
        case "flag":
            return "`true`, `false`"
        case "layers":
            return f"`{ALL_LINEAR}`, or up to {LAYERS_MAX} names"
        case "names":
            return f"up to {LAYERS_MAX} names"
        case "pattern":
            return f"{knob.low:,} to {knob.high:,} for up to {LAYERS_MAX} names"
        case "whole" | "number":
            return f"{knob.low:,} to {knob.high:,}"


def _default(knob: Knob) -> str:
    if knob.default is None:
        return "by rule"
    return f"`{knob.default}`" if isinstance(knob.default, str) else f"{knob.default:,}"

"""Plain TRL on the same rows in the same order, with the same adapter."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from tunery.ml.adapters import adapter_tensors
from tunery.ml.model import load_model
from tunery.ml.order import row_order
from tunery.ml.packed import PackedRows
from tunery.ml.rollouts import AnswerGroup
from tunery.work.spec import TrainSpec

STEPS_COMPARED = 20
CPU = torch.device("cpu")
RANKS = int(os.environ.get("WORLD_SIZE", "1"))  # of TRL: it gives each a part of a step


def sft_trainer(spec: TrainSpec, rows: Sequence[dict[str, Any]], folder: Path) -> Any:
    """TRL and PEFT alone on these rows, one for each rank and step, in the order of our steps."""
    from datasets import Dataset
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, set_seed
    from trl import SFTConfig, SFTTrainer

    hyper = spec.hyper
    four_bits = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.float32,
    )
    settings: dict[str, Any] = {"dtype": torch.float32}
    if hyper.adaptation == "qlora":
        settings |= {"quantization_config": four_bits, "device_map": {"": "cpu"}}
    base = AutoModelForCausalLM.from_pretrained(spec.base_dir, **settings)
    set_seed(hyper.seed)
    lora = LoraConfig(
        r=hyper.rank, lora_alpha=hyper.alpha, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    model = base if hyper.adaptation == "full" else get_peft_model(base, lora)
    base.is_loaded_in_4bit = False  # TRL would round the adapter to bf16, also in fp32
    ordered = [rows[at] for epoch in range(2) for at in row_order(hyper.seed, epoch, len(rows))]
    return SFTTrainer(
        model=model,
        args=SFTConfig(
            output_dir=str(folder),
            max_steps=len(ordered) // RANKS,
            per_device_train_batch_size=1,
            learning_rate=hyper.learning_rate,
            lr_scheduler_type="constant",
            train_sampling_strategy="sequential",
            max_length=None,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list(ordered),
        processing_class=AutoTokenizer.from_pretrained(spec.base_dir),
    )


def losses_of(trainer: Any) -> list[float]:
    """Train, and return the losses, one a step."""
    trainer.train()
    return [line["loss"] for line in trainer.state.log_history if "loss" in line]


def trl_trainer(
    spec: TrainSpec, rows: PackedRows, folder: Path, steps: int = STEPS_COMPARED
) -> Any:
    """The trainer of the spec's method."""
    from datasets import Dataset
    from transformers import AutoTokenizer

    of_spec = {"dpo": _dpo, "kto": _kto, "reward": _reward}.get(spec.hyper.method, _experimental)
    trainer, config, own = of_spec(spec)
    order = [i for epoch in range(spec.hyper.n_epochs) for i in row_order(42, epoch, len(rows))]
    read = answers_of if spec.hyper.method == "kto" else pairs_of
    examples = [example for index in order for example in read(rows, index)]
    hyper = spec.hyper
    rows_per_step = hyper.batch_size * hyper.accumulation
    arguments = config(
        output_dir=str(folder),
        per_device_train_batch_size=4 if hyper.method == "kto" else 2 * rows_per_step // RANKS,
        gradient_accumulation_steps=rows_per_step if hyper.method == "kto" else 1,
        max_steps=steps,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="constant",
        **({} if hyper.method == "reward" else {"beta": hyper.beta}),
        max_length=None,
        bf16=False,
        gradient_checkpointing=False,
        seed=hyper.seed,
        logging_steps=1,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        **own,
    )
    model = _classifier(spec) if hyper.method == "reward" else load_model(spec, hyper, "fp32", CPU)
    tokenizer = AutoTokenizer.from_pretrained(spec.base_dir)
    if of_spec is not _experimental:
        rows_of_trl = Dataset.from_list(examples)
        return trainer(
            model=model, args=arguments, train_dataset=rows_of_trl, processing_class=tokenizer
        )
    texts = Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}])
    ordered = trainer(model=model, args=arguments, train_dataset=texts, processing_class=tokenizer)
    ordered.train_dataset = Dataset.from_list([_tokenised(example) for example in examples])
    return ordered


def _dpo(spec: TrainSpec) -> tuple[Any, Any, dict[str, Any]]:
    from trl import DPOConfig, DPOTrainer

    class Tokenised(DPOTrainer):  # type: ignore[misc]  # trl is untyped
        """Takes token ids, and keeps to their order."""

        def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
            return dataset

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    own = {"loss_type": spec.hyper.loss_type, "label_smoothing": spec.hyper.label_smoothing}
    return Tokenised, DPOConfig, own


def _reward(spec: TrainSpec) -> tuple[Any, Any, dict[str, Any]]:
    from trl import RewardConfig, RewardTrainer

    class Tokenised(RewardTrainer):  # type: ignore[misc]  # trl is untyped
        """Takes token ids, and keeps to their order."""

        def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
            return dataset.map(
                lambda row: {
                    f"{side}_ids": row["prompt_ids"] + row[f"{side}_ids"]
                    for side in ("chosen", "rejected")
                }
            )

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    return Tokenised, RewardConfig, {"center_rewards_coefficient": spec.hyper.center_rewards}


def _classifier(spec: TrainSpec) -> Any:
    """A model of transformers with the adapter and the head that our training begins with."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
    from transformers import AutoModelForSequenceClassification

    hyper = spec.hyper
    base = AutoModelForSequenceClassification.from_pretrained(
        spec.base_dir, num_labels=1, dtype=torch.float32
    )
    config = LoraConfig(
        r=hyper.rank,
        lora_alpha=hyper.alpha,
        lora_dropout=hyper.dropout,
        target_modules="all-linear",
        modules_to_save=["score"],
        task_type="SEQ_CLS",
    )
    model = get_peft_model(base, config)
    ours = adapter_tensors(load_model(spec, hyper, "fp32", CPU))
    loaded = set_peft_model_state_dict(model, ours)
    assert not loaded.unexpected_keys
    return model


def _kto(spec: TrainSpec) -> tuple[Any, Any, dict[str, Any]]:
    from trl import KTOConfig, KTOTrainer

    class Tokenised(KTOTrainer):  # type: ignore[misc]  # trl is untyped
        """Takes token ids; its batch is a packed row of four answers."""

        def _prepare_dataset(self, dataset: Any, *args: Any) -> Any:
            return dataset

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    own = {
        "desirable_weight": spec.hyper.desirable,
        "undesirable_weight": spec.hyper.undesirable,
        "train_sampling_strategy": "sequential",
    }
    return Tokenised, KTOConfig, own


def _experimental(spec: TrainSpec) -> tuple[Any, Any, dict[str, Any]]:
    """Trainer, configuration class and options from `trl.experimental`, whose names may change."""
    from trl.experimental.cpo import CPOConfig, CPOTrainer
    from trl.experimental.orpo import ORPOConfig, ORPOTrainer

    hyper = spec.hyper
    base, config = (ORPOTrainer, ORPOConfig) if hyper.method == "orpo" else (CPOTrainer, CPOConfig)

    class Ordered(base):  # type: ignore[misc, valid-type]  # trl is untyped
        """Keeps to the order of its rows."""

        def _get_train_sampler(self, train_dataset: Any = None) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

    own: dict[str, Any] = {}
    if hyper.method == "simpo":
        own = {"loss_type": "simpo", "cpo_alpha": 0.0, "simpo_gamma": hyper.gamma}
    if hyper.method != "orpo":
        own["label_smoothing"] = hyper.label_smoothing
    return Ordered, config, own


def _tokenised(example: dict[str, list[int]]) -> dict[str, list[int]]:
    """A pair as the experimental trainers keep it."""
    prompt = example["prompt_ids"]
    pair = {"prompt_input_ids": prompt, "prompt_attention_mask": [1] * len(prompt)}
    for side in ("chosen", "rejected"):
        answer = example[f"{side}_ids"]
        pair[f"{side}_input_ids"] = prompt + answer
        pair[f"{side}_attention_mask"] = [1] * (len(prompt) + len(answer))
        pair[f"{side}_labels"] = [-100] * len(prompt) + answer
    return pair


def pairs_of(rows: PackedRows, index: int) -> list[dict[str, list[int]]]:
    row, examples, start = rows.rows[index], [], 0
    sides: list[tuple[list[int], int]] = []
    for length in row.lengths:
        is_label = row.is_label[start : start + length].tolist()
        sides.append((row.input_ids[start : start + length].tolist(), is_label.index(True)))
        start += length
    for (chosen, prompt), (rejected, _) in zip(sides[::2], sides[1::2], strict=True):
        examples.append(
            {
                "prompt_ids": chosen[:prompt],
                "chosen_ids": chosen[prompt:],
                "rejected_ids": rejected[prompt:],
            }
        )
    return examples


def answers_of(rows: PackedRows, index: int) -> list[dict[str, Any]]:
    """The answers of a packed row, with the labels true and false in turn."""
    examples = [
        {"prompt_ids": pair["prompt_ids"], "completion_ids": pair[f"{side}_ids"], "label": label}
        for pair in pairs_of(rows, index)
        for side, label in (("chosen", True), ("rejected", False))
    ]
    before = [examples[-1], *examples[:-1]]
    return [
        {**example, "KL_completion_ids": other["completion_ids"]}
        for example, other in zip(examples, before, strict=True)
    ]


def grpo_trainer(
    spec: TrainSpec, groups: Sequence[AnswerGroup], folder: Path, steps: int = STEPS_COMPARED
) -> Any:
    """TRL's GRPOTrainer, which is given the answers and rewards of its steps."""
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    hyper, left = spec.hyper, list(groups)
    at_once = len(groups) // steps  # prompts of a step
    rewards: list[float] = []

    def roll_out(prompts: list[str], _trainer: Any) -> dict[str, Any]:
        chosen = [left.pop(0) for _ in range(at_once)]
        assert len(prompts) == at_once * hyper.num_generations
        rewards[:] = [reward for group in chosen for reward in group.rewards.tolist()]
        completions = [list(ids) for group in chosen for ids in group.completions]
        return {
            "prompt_ids": [
                group.prompt.ids.tolist() for group in chosen for _ in group.completions
            ],
            "completion_ids": completions,
            "logprobs": [[0.0] * len(ids) for ids in completions],  # of vLLM, which is not used
        }

    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=at_once * hyper.num_generations,
        num_generations=hyper.num_generations,
        max_completion_length=hyper.max_completion_length,
        temperature=hyper.temperature,
        loss_type="grpo",
        beta=hyper.beta,
        max_steps=steps,
        learning_rate=hyper.learning_rate,
        lr_scheduler_type="constant",
        bf16=False,
        gradient_checkpointing=False,
        logging_steps=1,
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    return GRPOTrainer(
        model=load_model(spec, hyper, "fp32", CPU),
        reward_funcs=lambda prompts, **_: list(rewards),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "a"}] * (at_once * steps)),
        processing_class=AutoTokenizer.from_pretrained(spec.base_dir),
        rollout_func=roll_out,
    )

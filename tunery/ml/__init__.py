"""Training and scoring with tensors: the processes behind the port in `tunery.work`.

* processes: `train`, `score` (with the bundled `items/`), `train_and_score` (both for one job),
  `loaded` (whose forks are such processes),
  `process` (what they have in common), `inputs` (spec files, checked), `events` (their output),
  `beats` (heartbeats of ranks), `stop` (signals), `imports` (of large libraries)
* training: `fine_tuning` (one attempt), `training_run` (its state), `model` (base and adapter),
  `language` (the language model of a wrapper), `adapter_products` (what adapters add to layers),
  `float8` (products in eight bits), `loop` (its steps, their learning rates, and what happens
  between two of them),
  `engines` (what computes a step: one process, FSDP2, DeepSpeed), `adamw` (masters, moments,
  steps), `optimizers` (Muon, and which one a training has), `adamw_8bit` (moments in eight bits),
  `ranks` (processes that share a step),
  `self_check` (whether their steps repeat to the byte), `colocated` (several trainings on one
  base), `turns` (which of them works),
  `variants` (several as one, of which the best is left),
  `order` (which rows each step sees), `packed` (rows and batches),
  `suspects` (rows with the highest losses), `evaluations` (which was the best)
* what is learnt: `objectives` (of a batch), `methods` (each one's objective, and that of answers
  with labels), `loss` (of labels and answers), `attention` (of packed rows), `context` (of parts
  of rows), `preferences` (of pairs), `rewards` (of reward models), `reinforcement` (of graded
  answers, which `rollouts` writes), `model_scores` (what models say of them), `reference`
  (likelihoods before the training), `routers` (the loss of a mixture's), `kernels` (of each kind
  of device)
* loops of the client's own: `session` (its commands, one after the other), `token_losses` (of
  their rows), `sampling` (what the model goes on with)
* checkpoints: `saving` (of one attempt), `state` (what one holds), `checkpoints` (written whole,
  verified), `free_memory` (whether a copy fits)
* scoring: `scoring` (base and adapter side by side), `choices` (multiple-choice items),
  `reward_scoring` (of reward models), `sides` (both read at once), `generation` (greedy answers),
  `base_scores` (kept on the node), `measured` (rows of the tenant, by its measures),
  `benchmarks` (of the operator)
* before a base model is added: `base_check` (whether it is of use), `base_proof` (what jobs can do
  with it), `small_models` (that stand for large ones)
* answers: `answers` (a process that the engine asks)
* all: `base` (base models), `adapters` (canonical form), `merging` (adapter and base as one),
  `trained` (adapters and whole models), `device` (hardware and determinism), `proofs` (what need
  not be shown again), `durable` (directories that exist whole or not at all)

Importing this package turns every hub, tracker and telemetry client off before any of them is
imported: a tenant's file must not leave the machine because a library looked for an update.
"""

import os
import sys

_OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DO_NOT_TRACK": "1",
    "WANDB_MODE": "disabled",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRL_EXPERIMENTAL_SILENCE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
os.environ.update(_OFFLINE)
# transformers and PEFT import it wherever it is installed, for seconds: `float8` shows it.
sys.modules.setdefault("torchao", None)  # type: ignore[arg-type]  # None: it cannot be imported
# Spinning OpenMP threads made two threads take 84 s where one took 19 s on a shared machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

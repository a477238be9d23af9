"""When a training writes a checkpoint."""


def is_due(
    step: int,
    *,
    unsaved_s: float,
    cost_s: float,
    every_steps: int,
    every_s: float,
    share_max: float,
) -> bool:
    """Whether a checkpoint is written after this step.

    It is at every so many steps, except where it would take more than its share of the time, and
    after so long at the latest, whatever it costs.

    unsaved_s: since the last one was written, or since the attempt began
    cost_s: what the last one took, while the training stood still; 0: there is none yet
    share_max: of `unsaved_s` and the checkpoint together; 0: it has no bound
    """
    if unsaved_s >= every_s:
        return True
    is_affordable = not share_max or cost_s <= share_max * (unsaved_s + cost_s)
    return step % every_steps == 0 and is_affordable

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
    """Return whether a checkpoint is written after this step.

    One is due every `every_steps` steps, unless it would take more than `share_max` of the time,
    and after `every_s` at the latest, at any cost.

    unsaved_s: time since the last one was written, or since the attempt began
    cost_s: time that the last one paused the training; 0: there is none yet
    share_max: bound of `cost_s` as a share of `unsaved_s` and `cost_s` together; 0: no bound
    """
    if unsaved_s >= every_s:
        return True
    is_affordable = not share_max or cost_s <= share_max * (unsaved_s + cost_s)
    return step % every_steps == 0 and is_affordable

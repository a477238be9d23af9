"""Detection of trainings whose steps show that nothing is learnt. Pure.

Two signs, each for one kind of method: graded answers whose rewards are all equal give no gradient
at all, and a loss that has not fallen since the beginning has taught nothing yet. The watcher warns
by the same rule by which a training stops early where its tenant wants that.
"""

from statistics import median
from typing import Final

from msgspec import Struct

#: steps in a row whose rewards are all equal; a shorter training needs all of its steps
EQUAL_STEPS: Final = 20
#: deviation below which rewards are equal: sums of floats round
EQUAL_REWARDS: Final = 1e-6
#: share by which a loss that has moved is below that of the first steps
FALL_MIN: Final = 0.02
#: steps after which a loss should have moved, and the share of long trainings: they warm up first
STILL_STEPS: Final = 60
STILL_SHARE: Final = 0.2
#: steps of a training whose loss is judged: of fewer, one batch differs more than learning shows
STILL_STEPS_MIN: Final = 30
WINDOW_STEPS: Final = 20  # first and newest losses that are compared, at most


class Learning(Struct, frozen=True, array_like=True):
    """Running record of the signs of learning in a training's steps."""

    steps: int = 0  # number of steps that were added
    equal: int = 0  # newest steps in a row whose rewards were all equal
    # first, newest: losses of the first steps, and of the newest; empty where answers are graded
    first: tuple[float, ...] = ()
    newest: tuple[float, ...] = ()
    has_moved: bool = False  # the loss was below that of the first steps once, or rewards differed

    def add(self, total_steps: int, loss: float | None, reward_std: float | None) -> "Learning":
        """The record after one more step.

        reward_std: mean deviation of the rewards among the answers to one prompt; None: the method
          grades none.
        """
        steps = self.steps + 1
        if self.has_moved:
            return Learning(steps, has_moved=True)
        if reward_std is not None:
            if reward_std >= EQUAL_REWARDS:
                return Learning(steps, has_moved=True)
            return Learning(steps, self.equal + 1)
        if loss is None:
            return Learning(steps, 0, self.first, self.newest)
        width = max(1, min(WINDOW_STEPS, _patience(total_steps) // 3))
        first = self.first if len(self.first) >= width else (*self.first, loss)
        newest = (*self.newest, loss)[-width:]
        moved = len(newest) == width and median(newest) <= (1 - FALL_MIN) * median(first)
        return Learning(steps, 0, first, newest, moved)

    def shows_nothing(self, total_steps: int) -> bool:
        """Return whether enough steps have passed to say that nothing was learnt."""
        if self.equal:
            return self.equal >= min(EQUAL_STEPS, total_steps)
        if self.has_moved or total_steps < STILL_STEPS_MIN or not self.newest:
            return False
        return self.steps >= _patience(total_steps)


def _patience(total_steps: int) -> int:
    return max(min(total_steps, STILL_STEPS), round(STILL_SHARE * total_steps))

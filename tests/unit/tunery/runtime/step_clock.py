"""A clock for tests of pauses: it moves only by being slept on."""


class StepClock:
    """Time is the sum of all sleeps, which are recorded."""

    def __init__(self) -> None:
        self.slept_ms: list[int] = []

    def monotonic_ms(self) -> int:
        return sum(self.slept_ms)

    def now_ms(self) -> int:
        return sum(self.slept_ms)

    async def sleep(self, ms: int) -> None:
        self.slept_ms.append(ms)

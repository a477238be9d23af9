"""Errors of the local stack. Each says what is wrong, where, and what to do."""


class LocalError(Exception):
    """Something on this machine keeps the stack from running.

    `what` names the place; `fix` is a sentence the reader can act on.
    """

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix


class PortTaken(LocalError):
    """Another program uses a port that was free when it was chosen. Another one helps."""

    def __init__(self, name: str, port: int) -> None:
        super().__init__(
            f"port {port}, chosen for {name}, was taken by another program before {name} used it",
            "run `tunery up` again: it chooses another port",
        )
        self.port = port

"""A session as the journal shows it to one attempt: commands, answers, lease and end."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.session import (
    CommandAnswered,
    CommandTaken,
    Event,
    SessionCommand,
    SessionEnding,
    SessionLeased,
)


@dataclass
class CommandFeed:
    """The session as one attempt has read it so far."""

    attempt: int
    commands: dict[str, SessionCommand] = field(default_factory=dict)  # by name
    answered: set[str] = field(default_factory=set)  # names of commands
    # the session knows this attempt: before that it would refuse its answers
    is_leased: bool = False
    is_ending: bool = False  # no further command will come

    def fold(self, events: Iterable[Event]) -> None:
        """Take in events of the session, in their order."""
        for event in events:
            match event:
                case CommandTaken(command=command):
                    self.commands[command.name] = command
                case CommandAnswered(name=name):
                    self.answered.add(name)
                case SessionLeased(attempt=attempt):
                    self.is_leased = attempt == self.attempt
                case SessionEnding():
                    self.is_ending = True
                case _:
                    pass

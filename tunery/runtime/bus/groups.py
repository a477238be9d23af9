"""Names of consumer groups. Kafka grants a group by its name, so the name says whose it is."""


def owner_group(stream: str) -> str:
    """The group whose members own the partitions of a stream."""
    return f"tunery.{stream}.owner"


def reactor_group(service: str, stream: str) -> str:
    """The group whose members react to the journal of a stream for a service."""
    return f"tunery.{service}.reacts.{stream}"


def processor_group(service: str) -> str:
    """The group whose members process a topic for a service, and keep a table of it."""
    return f"tunery.{service}.processes"

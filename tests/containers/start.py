"""Official images of Kafka, PostgreSQL, S3 and Valkey, started by testcontainers.

It is given the images as JSON, prints variables of where they listen, as JSON, and stops them when
its input ends. Exit status 3, with a line on stderr: no container engine answers.
"""

import json
import secrets
import socket
import sys
from contextlib import ExitStack
from typing import Final

from docker.errors import DockerException  # type: ignore[import-untyped]  # of another environment
from testcontainers.core.container import DockerContainer  # type: ignore[import-not-found]  # of another environment
from testcontainers.core.wait_strategies import PortWaitStrategy  # type: ignore[import-not-found]  # of another environment

NO_ENGINE: Final = 3
READY_S_MAX: Final = 120
#: of containers; on this machine each gets a free port
PORTS: Final = {"kafka": 9092, "postgres": 5432, "s3": 7070, "valkey": 6379}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kafka_variables(port: int) -> dict[str, str]:
    """One broker that anybody may ask, and that says where this machine reaches it."""
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://127.0.0.1:{port}",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
    }


def main() -> int:
    """Start them, say where, and wait."""
    images: dict[str, str] = json.loads(sys.argv[1])
    ports = {name: free_port() for name in PORTS}
    secret = secrets.token_hex(16)
    variables = {
        "kafka": kafka_variables(ports["kafka"]),
        "postgres": {
            "POSTGRES_USER": "tunery",
            "POSTGRES_DB": "tunery",
            "POSTGRES_PASSWORD": secret,
        },
        "s3": {"ROOT_ACCESS_KEY": "tunery", "ROOT_SECRET_KEY": secret},
        "valkey": {},
    }
    commands = {"s3": "--port :7070 posix /tmp"}
    with ExitStack() as running:
        for name, image in images.items():
            container = DockerContainer(image).with_bind_ports(PORTS[name], ports[name])
            for variable, value in variables[name].items():
                container.with_env(variable, value)
            if name in commands:
                container.with_command(commands[name])
            container.waiting_for(PortWaitStrategy(PORTS[name]).with_startup_timeout(READY_S_MAX))
            running.enter_context(container)
        where = {
            "TUNERY_KAFKA_BOOTSTRAP": f"127.0.0.1:{ports['kafka']}",
            "TUNERY_POSTGRES_DSN": f"postgresql://tunery:{secret}@127.0.0.1:{ports['postgres']}/tunery",
            "TUNERY_S3_ENDPOINT": f"http://127.0.0.1:{ports['s3']}",
            "TUNERY_S3_ACCESS_KEY": "tunery",
            "TUNERY_S3_SECRET_KEY": secret,
            "TUNERY_S3_BUCKET": "tunery",
            "TUNERY_VALKEY_URL": f"redis://127.0.0.1:{ports['valkey']}/0",
        }
        sys.stdout.write(json.dumps(where) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DockerException as error:
        sys.stderr.write(f"no container engine answers: {error}\n")
        sys.exit(NO_ENGINE)

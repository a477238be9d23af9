"""The servers and services of one machine.

stack: starts four servers and then the services, and stops them in order
supervisor, child: keeps child processes running; what a child process is
kafka, postgres, valkey, s3: the four servers as child processes
s3_accounts: an account of the embedded S3 for each service and node, with its rights
prometheus, rules.yml: watches a stack where that is asked for; its rules and alerts
settings, secrets, ports, paths, identity: addresses, passwords, folders, and the user of PostgreSQL
state, events: the state file, and the events that it is made from
processes: processes of this machine, also those of an earlier run
lifecycle, initial_setup: `tunery up` and `tunery down`; the first tenant and the base model
doctor: checks what a stack needs on this machine
hub, s3_folder: download base models by name and revision, or from object storage
bootstrap, provide, jars, startup_cache: set-up: the virtual environment, the servers, Kafka's jars
errors: LocalError, which names a fix
"""

from tunery.local.errors import LocalError
from tunery.local.stack import SERVERS, SERVICES, ServiceSpec, Stack, stack

__all__ = ["SERVERS", "SERVICES", "LocalError", "ServiceSpec", "Stack", "stack"]

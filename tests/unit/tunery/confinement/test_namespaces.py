"""Namespaces of its own: a process enters them, and this one stays."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.security

ENTERS: Final = """
import os
from tunery.confinement import namespaces
namespaces.separate()
namespaces.drop_capabilities()
print(os.readlink("/proc/self/ns/net"))
"""


def test_a_process_enters_a_network_without_interfaces() -> None:
    command = [sys.executable, "-c", ENTERS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() != str(Path("/proc/self/ns/net").readlink())

"""Imports of the libraries that training and answering need."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def large_imports() -> Iterator[None]:
    """Import large libraries inside of this. For the start of a process.

    Nothing that a module defines is garbage, and Python's collector would look through all of it
    again and again: for a third of the twelve seconds of processor time that the imports of a
    training take. Afterwards it leaves out what is there by then; a process that ends by
    os._exit spares it the last look, of seconds, and the bindings' complaints of leaks.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()

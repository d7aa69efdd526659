"""Threads that read while a test writes."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

READERS = 4


def write_with_readers(write: Callable[[], None], read: Callable[[], None]) -> None:
    """Write while other threads read continuously. Raise the first failure of any thread."""
    done = threading.Event()

    def reader() -> None:
        while not done.is_set():
            read()

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(reader) for _ in range(READERS)]
        try:
            write()
        finally:
            done.set()
    for each in readers:
        each.result()

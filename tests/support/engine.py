"""Container engine of this machine."""

import gc
import importlib
import warnings
from collections.abc import Iterable
from contextlib import closing


def obstacle(images: Iterable[str]) -> str | None:
    """Return the reason why containers of these images cannot start, or None; pull missing images."""
    docker = importlib.import_module("docker")  # slow to import, and most tests do not need it
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its socket open if the engine does not answer
        try:
            client = docker.from_env(timeout=5)
            client.ping()
        except docker.errors.DockerException:
            client = None
        gc.collect()
    if client is None:
        return "no container engine answers"
    with closing(client):
        for image in images:
            try:
                client.images.get(image)
            except docker.errors.ImageNotFound:
                try:
                    client.images.pull(image)
                except docker.errors.APIError:
                    return f"the container engine has no image {image} and cannot pull it"
    return None

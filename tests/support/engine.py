"""The container engine of this machine."""

import gc
import importlib
import warnings
from collections.abc import Iterable
from contextlib import closing


def obstacle(images: Iterable[str]) -> str | None:
    """Return why no container of these images can be started here, or None; images that are missing are pulled."""
    docker = importlib.import_module("docker")  # slow to import, and of no use to most tests
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # it leaves its socket open when nobody answers
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

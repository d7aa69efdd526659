"""The service: pattern subscriptions kept expanded by a Spark Structured Streaming job on Kafka."""

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    """Return `__version__`, the version of the installed distribution.

    The lookup waits for the first use: a step of the image's build imports this package before it is installed.
    """
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - only here

        return version("reexpand")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

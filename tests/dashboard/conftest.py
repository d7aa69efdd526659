"""The browser of the console's tests."""

from tests.console.conftest import chromium, opened

__all__ = ["chromium", "opened"]

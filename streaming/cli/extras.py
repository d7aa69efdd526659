"""Packages that are installed on demand, by extras of the distribution."""

import re
from collections import Counter
from importlib.metadata import requires

from streaming.errors import ExtraMissing

_DISTRIBUTIONS = {"py4j": "pyspark"}
"""Distributions that bring a module of another name with them."""


def explained(error: ModuleNotFoundError, verb: str | None) -> ExtraMissing | None:
    """Return what to install for a verb that lacks a module; None where no extra brings the module."""
    module = (error.name or "").partition(".")[0].replace("_", "-")
    name = _DISTRIBUTIONS.get(module, module)
    found = [re.match(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]", each) for each in requires("reexpand") or []]
    pairs = [(match[1].replace("_", "-"), match[2]) for match in found if match]
    sizes = Counter(extra for _, extra in pairs)
    extras = sorted((extra for brought, extra in pairs if brought == name), key=sizes.__getitem__)
    if not extras:
        return None
    return ExtraMissing(
        f"`reexpand {verb}` needs {name}, which the extra {extras[0]} brings: "
        f"pip install 'reexpand[{extras[0]}]' (from a checkout: pip install '.[{extras[0]}]')."
    )

"""Packages that are installed on demand, by extras of the distribution."""

import re
from importlib.metadata import requires

from streaming.errors import ExtraMissing

_DISTRIBUTIONS = {"py4j": "pyspark"}
"""Distributions that bring a module of another name with them."""

_OF_VERBS = dict.fromkeys(
    ("advise", "clients", "explain", "groups", "plan", "send", "subscriptions", "tail", "topics"), "inspect"
)
"""Extras of the verbs that do not need the one of the job."""


def explained(error: ModuleNotFoundError, verb: str | None) -> ExtraMissing | None:
    """Return what to install for a verb that lacks a module; None where no extra brings the module."""
    module = (error.name or "").partition(".")[0].replace("_", "-")
    name = _DISTRIBUTIONS.get(module, module)
    found = [re.match(r"([\w.-]+).*;.*\bextra == ['\"]([\w-]+)['\"]", each) for each in requires("reexpand") or []]
    extras = {match[2] for match in found if match and match[1].replace("_", "-") == name}
    extra = next((each for each in (_OF_VERBS.get(verb or "", "job"), "job", *sorted(extras)) if each in extras), None)
    if extra is None:
        return None
    return ExtraMissing(
        f"`reexpand {verb}` needs {name}, which the extra {extra} brings: "
        f"pip install 'reexpand[{extra}]' (from a checkout: pip install '.[{extra}]')."
    )

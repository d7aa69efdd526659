"""Fuzz one target, guided by coverage: `python -m tests.fuzz.guided NAME [options of libFuzzer]`; needs atheris."""

import sys
import warnings

import atheris

with atheris.instrument_imports(include=["matcher", "streaming"]):
    from tests.fuzz.run import TARGETS

if __name__ == "__main__":
    warnings.simplefilter("error")
    target = TARGETS[sys.argv.pop(1)]
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()

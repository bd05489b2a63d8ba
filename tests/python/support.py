"""What the test files share: cases by name, a reason for a skip as exit status 77, the program."""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import unittest
import warnings
from pathlib import Path

import slimpack

SOURCE = Path(os.environ["SOURCE"])
DEMO = str(SOURCE / "experiments" / "demo.json")


def needs(name):
    """A module, or a skip."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise unittest.SkipTest(f"no {name} (Debian: python3-{name})") from None


def example(name):
    """A program of experiments/examples as a module."""
    sys.path.insert(0, str(SOURCE / "experiments" / "examples"))
    return importlib.import_module(name)


def ask(*words, text=None):
    """The program itself: exit status, standard output, standard error."""
    done = subprocess.run([slimpack.program(), *words], input=text, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def without_clocks(document):
    """A document less what the machine's own clock measured."""
    if isinstance(document, dict):
        return {
            key: without_clocks(value)
            for key, value in document.items()
            if key not in ("solver_ms", "simulate_ms", "seconds", "elapsed_s")
        }
    return [without_clocks(value) for value in document] if isinstance(document, list) else document


def answer_of(*words, text=None):
    return without_clocks(json.loads(ask(*words, "--json", "--quiet", text=text)[1]))


@contextlib.contextmanager
def told():
    """Warnings as a list of texts."""
    texts = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(warning.message) for warning in caught]


def main():
    """Runs the case that is named; 77: skipped."""
    case = sys.argv[1]
    module = sys.modules["__main__"]
    owner = next(
        owner
        for owner in vars(module).values()
        if isinstance(owner, type) and issubclass(owner, unittest.TestCase) and hasattr(owner, case)
    )
    result = unittest.TextTestRunner().run(owner(case))
    for _, reason in result.skipped:
        print("SKIPPED:", reason)
        sys.exit(77)
    sys.exit(not result.wasSuccessful() or result.testsRun != 1)

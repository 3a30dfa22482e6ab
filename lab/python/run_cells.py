"""Runs the cases, or the controls, for `counterfoil-lab matrix`, and reports each as it ends.

    run_cells.py cases|controls stdio|http

The environment is that of test_cases.py; COUNTERFOIL_LAB_KEEP must be set. Stdout has one JSON
object a line: first the versions, then of each cell its case, status (pass | fail | unsupported |
machinery_error), words, folder, ledger and how long it took.
"""

import concurrent.futures
import importlib.metadata
import inspect
import json
import os
import pathlib
import platform
import sys
import time
import traceback
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CONTROLS = {
    "identical": "test_unguarded_an_identical_retry_makes_a_duplicate",
    "changed": "test_unguarded_a_changed_retry_makes_a_duplicate",
    "after-crash": "test_unguarded_a_retry_after_a_crash_makes_a_duplicate",
    "fresh-id": "test_guarded_a_fresh_id_makes_a_second_issue",
}
# Tests wait for servers more than they compute.
AT_ONCE = 4


class Result(unittest.TestResult):
    """Sorts what became of one test: a broken promise is a failure, all else is the lab's fault."""

    def __init__(self):
        super().__init__()
        self.status, self.words = "pass", ""

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.status, self.words = "fail", _words(err)

    def addError(self, test, err):
        super().addError(test, err)
        if self.status == "pass":
            self.status, self.words = "machinery_error", _words(err)


def _words(err):
    """The error first; where it arose in our own code below."""
    kind, error, trace = err
    places = [f"{pathlib.Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(trace)]
    return f"{kind.__name__}: {error}\nat {', '.join(places[-6:])}"


def missing_api(transport):
    """What the SDK that is here has not, of what the cases need; empty if it has all."""
    import mcp
    from mcp import types

    taken = inspect.signature(mcp.ClientSession.call_tool).parameters
    missing = [
        f"ClientSession.call_tool({name}=)"
        for name in ("request_state", "input_responses", "allow_input_required")
        if name not in taken
    ]
    if not hasattr(types, "InputRequiredResult"):
        missing.append("mcp.types.InputRequiredResult")
    if transport == "http":
        try:
            from mcp.client.streamable_http import streamable_http_client  # noqa: F401
        except ImportError:
            missing.append("mcp.client.streamable_http.streamable_http_client")
    return missing


def suite_of(name, transport):
    """The tests of a suite by their cells' names."""
    if transport == "http":
        from test_http_cases import Control, TwelveCases
    else:
        from test_cases import Control, TwelveCases
    if name == "controls":
        return {case: Control(method) for case, method in CONTROLS.items()}
    methods = unittest.TestLoader().getTestCaseNames(TwelveCases)
    # test_01_... is case 01.
    return {method.split("_")[1]: TwelveCases(method) for method in methods}


def run(case, test):
    """One cell."""
    result, began = Result(), time.monotonic()
    test.run(result)
    folder = pathlib.Path(os.environ["COUNTERFOIL_LAB_KEEP"]) / test.id() / "bench"
    return {
        "case": case,
        "status": result.status,
        "words": result.words,
        "folder": str(folder),
        "ledger": str(folder / "data" / "ledger.db"),
        "took_ms": int((time.monotonic() - began) * 1000),
    }


def say(report):
    print(json.dumps(report), flush=True)


def main(suite, transport):
    sys.path.insert(0, str(HERE))
    versions = {"python": platform.python_version(), "mcp": importlib.metadata.version("mcp")}
    say({"versions": versions})
    missing = missing_api(transport)
    if missing:
        numbers = CONTROLS if suite == "controls" else [f"{n:02}" for n in range(1, 13)]
        words = f"this version of the SDK has no {', '.join(missing)}"
        for case in numbers:
            say({"case": case, "status": "unsupported", "words": words, "took_ms": 0})
        return
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        cells = [pool.submit(run, *cell) for cell in suite_of(suite, transport).items()]
        for done in concurrent.futures.as_completed(cells):
            say(done.result())


if __name__ == "__main__":
    main(*sys.argv[1:])

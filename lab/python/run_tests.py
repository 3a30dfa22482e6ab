"""Runs every Python test beside this file, each file in a process of its own, all at once.

    run_tests.py [FILE...]

Each process ends with a line in the form that cargo prints, and ./test adds these lines' numbers to
cargo's. A test is counted once, however many of its subtests fail. Files named test_*.py and
*_check.py are tests; with names of files, these alone run, in this process.
"""

import concurrent.futures
import pathlib
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PATTERNS = ("test_*.py", "*_check.py")


class Result(unittest.TextTestResult):
    """Counts what passed; unittest itself counts only what ran."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.passed += 1


def count_tests(cases):
    """How many tests these reports are about: a subtest reports for the test it runs in."""
    return len({getattr(case, "test_case", case) for case in cases})


def run_all():
    """Runs every file; 1 if one of them failed."""
    files = sorted(path.name for pattern in PATTERNS for path in HERE.glob(pattern))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for done in pool.map(run_apart, files):
            sys.stderr.write(done.stderr)
            sys.stdout.write(done.stdout)
            sys.stdout.flush()
            failed |= done.returncode != 0
    return int(failed)


def run_apart(file):
    """One file in a process of its own: tests wait for servers more than they compute."""
    command = [sys.executable, __file__, file]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def run(files):
    """Runs these files here; 1 if a test failed or none was found."""
    sys.path.insert(0, str(HERE))
    suite = unittest.TestSuite()
    for file in files:
        suite.addTests(unittest.TestLoader().discover(str(HERE), file))
    start = time.monotonic()
    runner = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result)
    result = runner.run(suite)
    seconds = time.monotonic() - start

    # What breaks around tests (an import, a class's set-up) is reported here too.
    reports = [case for case, _ in result.failures + result.errors]
    failed = count_tests(reports + result.unexpectedSuccesses)
    skipped = count_tests(case for case, _ in result.skipped)
    good = failed == 0 and result.passed > 0
    print(
        f"test result: {'ok' if good else 'FAILED'}. "
        f"{result.passed} passed; {failed} failed; {skipped} ignored; "
        f"finished in {seconds:.2f}s"
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]) if sys.argv[1:] else run_all())

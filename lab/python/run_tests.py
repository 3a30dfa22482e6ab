"""Runs every Python test beside this file and ends with a line in the form that cargo prints.

./test adds that line's numbers to cargo's. A test is counted once, however many of its
subtests fail. Files named test_*.py and *_check.py are tests.
"""

import pathlib
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


def main():
    sys.path.insert(0, str(HERE))
    suite = unittest.TestSuite()
    for pattern in PATTERNS:
        # A new loader each time: a loader remembers the folder of its last discovery.
        suite.addTests(unittest.TestLoader().discover(str(HERE), pattern))
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
    sys.exit(main())

"""The physical rows, read back by a program that knows the schema and nothing of the server."""

import collections
import json
import pathlib
import subprocess
import sys

READBACK = pathlib.Path(__file__).resolve().parent.parent / "readback.py"


def read(ledger):
    """The facts of a ledger whose writers have left."""
    command = [sys.executable, str(READBACK), str(ledger)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"the ledger cannot be read back: {done.stderr}")
    facts = json.loads(done.stdout)
    if facts["integrity"] != "ok" or facts["foreign_key_violations"]:
        raise AssertionError(f"the ledger is damaged: {facts}")
    return {name: table["rows"] for name, table in facts["tables"].items()}


def duplicates(facts):
    """The detector: operations that made more than one issue, with the issues' IDs."""
    made = collections.defaultdict(list)
    for issue in facts["issues"]:
        made[issue["operation_id"]].append(issue["id"])
    return {operation: issues for operation, issues in made.items() if len(issues) > 1}

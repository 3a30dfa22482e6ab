"""Reads a ledger's physical rows back, sharing nothing with the server but its schema.

    python3 lab/python/readback.py LEDGER [TABLE...]

Prints one JSON object on stdout:

    {"integrity": "ok", "foreign_key_violations": 0,
     "tables": {"operations": {"count": 1, "rows": [{...}], "unread_columns": []}, ...}}

It looks at a copy, taken by SQLite's backup API over a read-only connection: one consistent
snapshot, whether writers live, have left or were killed. The ledger's files stay as they are.

Exit code 0: read. 2: no such file, not a ledger, or not the schema below; stderr says which.
"""

import argparse
import contextlib
import json
import pathlib
import sqlite3
import sys
import tempfile

# ---- the schema, in this one place --------------------------------------------------------------

# How a column's bytes are shown: `text` is UTF-8 kept as a BLOB (U+0000 is legal in it), `json`
# is the text of one JSON value, `hex` is an identity or digest, `int` is a number or a time in
# milliseconds since 1970, `state` is a number with a name.
TABLES = {
    "operations": {
        "operation_key": "hex",
        "operation_id": "text",
        "principal": "text",
        "tool_id": "text",
        "state": "state",
        "result": "json",
    },
    "issues": {
        "id": "int",
        "operation_key": "hex",
        "title": "text",
        "body": "text",
        "operation_id": "text",
        "created_at_ms": "int",
    },
    "watchers": {"id": "int", "operation_key": "hex", "issue_id": "int", "name": "text"},
    "audit_events": {
        "operation_key": "hex",
        "seq": "int",
        "at_ms": "int",
        "kind": "text",
        "identity": "text",
        "who": "text",
        "reason": "text",
    },
}

STATES = {0: "in_progress", 1: "applied", 2: "partial", 3: "not_applied", 4: "in_doubt"}


# ---- reading ------------------------------------------------------------------------------------


class Unreadable(Exception):
    """The file is not a ledger that this program knows; the text says why."""


def read_ledger(path, tables=None):
    """The facts of the ledger at `path`, as one object that JSON can hold.

    `tables` limits the tables; None is all of them.
    """
    wanted = list(TABLES) if tables is None else list(tables)
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        raise Unreadable(f"unknown table {unknown[0]!r}: it is one of {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "copy.db"
        try:
            _copy(pathlib.Path(path), copy)
            with contextlib.closing(sqlite3.connect(copy)) as connection:
                connection.row_factory = sqlite3.Row
                return _facts(connection, wanted)
        except sqlite3.Error as error:
            raise Unreadable(f"{path}: {error}") from error


def _copy(path, target):
    if not path.is_file():
        raise Unreadable(f"{path}: no such file")
    uri = path.resolve().as_uri() + "?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as source:
        with contextlib.closing(sqlite3.connect(target)) as copy:
            # All pages in one step: one read transaction, one moment.
            source.backup(copy, pages=-1)


def _facts(connection, wanted):
    integrity = [row[0] for row in connection.execute("PRAGMA integrity_check")]
    violations = connection.execute("PRAGMA foreign_key_check").fetchall()
    return {
        "integrity": integrity[0] if integrity == ["ok"] else integrity,
        "foreign_key_violations": len(violations),
        "tables": {name: _table(connection, name) for name in wanted},
    }


def _table(connection, name):
    present = [row["name"] for row in connection.execute(f"PRAGMA table_info({name})")]
    if not present:
        raise Unreadable(f"there is no table {name}: not a ledger, or another schema")
    missing = [column for column in TABLES[name] if column not in present]
    if missing:
        raise Unreadable(f"table {name} has no column {missing[0]}: another schema")
    # Every table's key begins with its first column, so the order is the order of creation.
    rows = connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2").fetchall()
    return {
        "count": len(rows),
        "rows": [_row(name, row) for row in rows],
        "unread_columns": [column for column in present if column not in TABLES[name]],
    }


def _row(table, row):
    return {column: _show(kind, row[column]) for column, kind in TABLES[table].items()}


def _show(kind, value):
    if value is None:
        return None
    if kind == "state":
        return STATES.get(value, f"state {value!r} without a name")
    if kind == "int":
        return value
    raw = value if isinstance(value, bytes) else str(value).encode("utf-8")
    if kind == "hex":
        return raw.hex()
    try:
        text = raw.decode("utf-8")
        return json.loads(text) if kind == "json" else text
    except ValueError:
        # A fact all the same: shown as it is, so that a test can fail on it.
        return {"invalid_" + kind: raw.hex()}


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Prints the physical rows of a ledger as JSON.")
    parser.add_argument("ledger", type=pathlib.Path, help="the ledger's file")
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="only these tables")
    options = parser.parse_args(arguments)
    try:
        facts = read_ledger(options.ledger, options.tables or None)
    except Unreadable as error:
        print(f"readback: {error}", file=sys.stderr)
        return 2
    json.dump(facts, sys.stdout, ensure_ascii=False, indent=1)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())

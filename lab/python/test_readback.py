"""Tests of the read-back program: a witness must see what is there and disturb nothing."""

import contextlib
import io
import json
import pathlib
import signal
import sqlite3
import subprocess
import sys
import tempfile
import unittest

import readback

# Commits one operation, leaves a second one uncommitted, says so and waits to be killed.
WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = wal")
insert = "INSERT INTO operations (operation_key, operation_id, state, result) VALUES (?, ?, ?, ?)"
connection.execute(insert, (b"\\x01", b"committed", 1, b'"created 1"'))
connection.execute("BEGIN IMMEDIATE")
connection.execute(insert, (b"\\x02", b"uncommitted", 0, None))
print("ready", flush=True)
sys.stdin.read()
"""


class Readback(unittest.TestCase):
    """Physical rows are what a killed or living writer committed, and no more."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ledger = self.folder / "a ledger?#%.db"
        with contextlib.closing(sqlite3.connect(self.ledger)) as connection:
            for name, columns in readback.TABLES.items():
                connection.execute(f"CREATE TABLE {name} ({', '.join(columns) or 'key'})")

    def insert(self, table, **values):
        with contextlib.closing(sqlite3.connect(self.ledger)) as connection:
            marks = ", ".join("?" * len(values))
            columns = ", ".join(values)
            insert = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
            connection.execute(insert, tuple(values.values()))
            connection.commit()

    def run_main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = readback.main([str(argument) for argument in arguments])
        return code, out.getvalue(), err.getvalue()

    def files(self):
        # The -shm file is an index that any reader may rebuild; it holds no facts.
        paths = (path for path in self.folder.iterdir() if not path.name.endswith("-shm"))
        return {path.name: path.read_bytes() for path in paths}

    def start_writer(self):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(self.ledger)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(writer.wait)
        self.addCleanup(writer.kill)
        self.addCleanup(writer.stdin.close)
        self.addCleanup(writer.stdout.close)
        self.assertEqual(writer.stdout.readline(), "ready\n")
        return writer

    def test_values_are_shown_by_their_kind(self):
        # Defends: a row's facts reach the tests whole, whatever bytes they hold.
        self.insert(
            "operations",
            operation_key=bytes(range(16)),
            operation_id="nul \0 and Zürich".encode(),
            principal=b"\xff",
            state=1,
            result=b'{"n": 9007199254740993}',
        )
        code, out, _ = self.run_main(self.ledger, "operations")
        self.assertEqual(code, 0)
        facts = json.loads(out)
        self.assertEqual(facts["integrity"], "ok")
        self.assertEqual(list(facts["tables"]), ["operations"])
        (row,) = facts["tables"]["operations"]["rows"]
        self.assertEqual(row["operation_key"], "000102030405060708090a0b0c0d0e0f")
        self.assertEqual(row["operation_id"], "nul \0 and Zürich")
        self.assertEqual(row["principal"], {"invalid_text": "ff"})
        self.assertEqual(row["state"], "applied")
        self.assertEqual(row["result"], {"n": 9007199254740993})
        self.assertIsNone(row["tool_id"])

    def test_a_living_writer_is_read_and_not_blocked(self):
        # Defends: a witness neither waits for a writer nor sees what it has not committed.
        self.start_writer()
        operations = readback.read_ledger(self.ledger)["tables"]["operations"]
        self.assertEqual([row["operation_id"] for row in operations["rows"]], ["committed"])

    def test_a_killed_writers_files_stay_as_they_were(self):
        # Defends: reading the evidence after a kill does not change it.
        writer = self.start_writer()
        writer.kill()
        self.assertEqual(writer.wait(), -signal.SIGKILL)
        before = self.files()
        self.assertIn(self.ledger.name + "-wal", before)
        operations = readback.read_ledger(self.ledger)["tables"]["operations"]
        self.assertEqual([row["result"] for row in operations["rows"]], ["created 1"])
        self.assertEqual(self.files(), before)

    def test_what_is_not_a_ledger_is_refused(self):
        # Defends: a witness that cannot read says so; it never reports zero rows instead.
        noise = self.folder / "noise.db"
        noise.write_bytes(b"not a database, but long enough to be looked at" * 100)
        empty = self.folder / "empty.db"
        sqlite3.connect(empty).close()
        cases = [
            ((self.folder / "absent.db",), "no such file"),
            ((noise,), "not a database"),
            ((empty,), "there is no table operations"),
            ((self.ledger, "secrets"), "unknown table 'secrets'"),
        ]
        for arguments, expected in cases:
            with self.subTest(expected):
                code, out, err = self.run_main(*arguments)
                self.assertEqual((code, out), (2, ""))
                self.assertIn(expected, err)

    def test_an_unknown_column_is_named(self):
        # Defends: a schema that grew does not go unread without a trace.
        with contextlib.closing(sqlite3.connect(self.ledger)) as connection:
            connection.execute("ALTER TABLE issues ADD COLUMN colour")
        issues = readback.read_ledger(self.ledger)["tables"]["issues"]
        self.assertEqual(issues["unread_columns"], ["colour"])


if __name__ == "__main__":
    unittest.main()

"""Where the programs are, and what all cases have in common."""

import os
import pathlib
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[3]
BINARY = pathlib.Path(
    os.environ.get("COUNTERFOIL_LAB_BIN") or ROOT / "target" / "debug" / "counterfoil-lab"
)
# The product itself, which the same build puts beside the lab's program.
PRODUCT = BINARY.with_name("counterfoil")

# The clocks of all cases begin here: 2027-01-15T08:00:00Z.
START_MS = 1_800_000_000_000
MODERN = "2026-07-28"
LEGACY = ("2025-11-25", "2025-06-18")
# A bound that keeps a hung server from hanging the tests; nothing is asserted of time.
PATIENCE_S = 60


class Server(NamedTuple):
    """A server to start. `place` names the files that it leaves behind."""

    place: pathlib.Path
    data: pathlib.Path
    clock_ms: int
    flags: tuple

    def command(self, *more):
        """The command line of the lab's server."""
        given = ["child", "--data-dir", self.data, "--clock-ms", self.clock_ms, *more, *self.flags]
        return [str(word) for word in (BINARY, *given)]

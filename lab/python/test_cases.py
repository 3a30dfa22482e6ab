"""Runs the cases of `cases/` against the lab's real servers.

COUNTERFOIL_LAB_BIN names the lab's binary, and the product's is beside it; without it,
target/debug/counterfoil-lab is taken, as `cargo build --workspace --bins` makes it.
COUNTERFOIL_LAB_KEEP=DIR keeps transcripts, logs and ledgers there, a folder a test.
"""

from cases.control import Control
from cases.faults import Faults
from cases.listing import Listing
from cases.rounds import Rounds
from cases.settings import BINARY, PRODUCT
from cases.twelve import TwelveCases

__all__ = ["Control", "Faults", "Listing", "Rounds", "TwelveCases"]


def setUpModule():  # noqa: N802 (unittest's name)
    """One clear failure in place of one for each case."""
    for program in (BINARY, PRODUCT):
        if not program.is_file():
            raise AssertionError(
                f"there is no {program}; run `cargo build --workspace --bins`, or name the lab's "
                "binary in COUNTERFOIL_LAB_BIN"
            )

"""Runs the cases of `cases/` over Streamable HTTP.

Where a reply is lost the revision is 2026-07-28: older clients may resume a stream, which hides the
loss. For the environment see test_cases.py.
"""

from cases import control, faults, rounds, twelve
from cases.identities import Identities
from cases.over_http import Http
from test_cases import setUpModule

__all__ = ["Control", "Faults", "Identities", "Rounds", "TwelveCases", "setUpModule"]


class TwelveCases(twelve.TwelveCases):
    """The twelve cases."""

    transport = Http()


class Control(control.Control):
    """The control: it must see duplicates over HTTP too."""

    transport = Http()


class Faults(faults.Faults):
    """Hard exits, a held lock and a failing effect."""

    transport = Http()


class Rounds(rounds.Rounds):
    """How an issue's body is asked for; in the older revisions too, on sessions."""

    transport = Http()
    # An older client may resume its stream: what was lost would not stay lost.
    test_a_lost_reply_is_recovered_in_every_legacy_revision = None

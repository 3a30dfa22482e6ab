"""What a client may conclude. It has no action that sends: a missing reply never grants a write."""

import datetime
import re
from typing import NamedTuple

FIELDS = {
    "operationId",
    "principal",
    "backend",
    "state",
    "authoritative",
    "freshWriteAuthorized",
    "observedAt",
    "scope",
    "scopeBinding",
    "matchingIds",
    "detail",
    "storedResult",
}


class Belief(NamedTuple):
    """Both axes, and what follows from them."""

    submission: str  # not_admitted | admitted | unknown
    effect: str  # not_applied | applied | partial | unknown
    action: str  # reconcile | return_stored_result | stop


class NotBelieved(Exception):
    """The observation contradicts itself or speaks of something else."""


AFTER_A_LOST_REPLY = Belief("unknown", "unknown", "reconcile")

BELIEFS = {
    "applied": Belief("admitted", "applied", "return_stored_result"),
    "partial": Belief("admitted", "partial", "stop"),
    "not_applied": Belief("admitted", "not_applied", "stop"),
    "unknown": Belief("unknown", "unknown", "stop"),
}


def accept(observation, operation_id, principal, backend=None):
    """The belief that an observation leads to; raises NotBelieved if its parts do not agree."""
    seen = observation
    _ensure(set(seen) == FIELDS, f"the fields are {sorted(seen)}")
    binding = {name: seen[name] for name in ("operationId", "principal", "backend")}
    _ensure(seen["operationId"] == operation_id, "operationId is another operation")
    _ensure(seen["principal"] == principal, "principal is not the one that asked")
    _ensure(backend in (None, seen["backend"]), "backend is another ledger")
    _ensure(seen["scopeBinding"] == binding, "scopeBinding differs from the account")
    _ensure(seen["freshWriteAuthorized"] is False, "an observation never grants a write")
    _ensure(seen["state"] in BELIEFS, f"there is no state {seen['state']!r}")
    _ensure(seen["authoritative"] is (seen["state"] != "unknown"), "authoritative and state differ")
    _check_time(seen["observedAt"])
    _check_effect(seen)
    if seen["state"] == "applied" and seen["storedResult"] is None:
        return Belief("admitted", "applied", "stop")
    return BELIEFS[seen["state"]]


def _check_time(text):
    moment = datetime.datetime.fromisoformat(text)
    _ensure(moment.tzinfo is not None, "observedAt has no zone")


def _check_effect(seen):
    ids, result = seen["matchingIds"], seen["storedResult"]
    if seen["state"] == "unknown":
        _ensure(ids == [] and result is None, "the state is unknown, yet an effect is claimed")
    elif seen["state"] == "not_applied":
        _ensure(ids == [], "the state is not_applied, yet a row is claimed")
    elif result is None:
        _ensure(seen["detail"] == "purged", "there is no stored result, and it was not purged")
    else:
        named = re.match(r"created (\d+)", result if isinstance(result, str) else "")
        _ensure(named is not None, "the stored result does not say what was created")
        _ensure(ids == [int(named[1])], "the stored result names another row than matchingIds")


def _ensure(holds, reason):
    if not holds:
        raise NotBelieved(reason)

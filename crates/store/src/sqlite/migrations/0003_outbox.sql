-- The outbox: effects that are delivered later. Its tables begin with `outbox`; an embedder's may not.

-- 1: rows in this database; 2: an item of the outbox; 3: sent while the caller waits.
ALTER TABLE operations ADD COLUMN nature INTEGER NOT NULL DEFAULT 1;

-- Where items go, and whether they may. Made by the first item, or by an operator's order.
CREATE TABLE outbox_targets (
    target_no       INTEGER PRIMARY KEY,
    name            BLOB    NOT NULL UNIQUE,
    -- Parked by an answer: its class and words, since when, how often it was tried in vain since,
    -- and when the next item may be.
    parked_class    BLOB,
    parked_words    BLOB,
    parked_at_ms    INTEGER,
    probes          INTEGER,
    probe_at_ms     INTEGER,
    -- Paused by an operator: who, why, since when.
    paused_by       BLOB,
    paused_reason   BLOB,
    paused_at_ms    INTEGER
) STRICT;

-- Terms of delivery, each once: the text of one JSON object. Never changed.
CREATE TABLE outbox_terms (
    terms_no        INTEGER PRIMARY KEY,
    terms           BLOB    NOT NULL UNIQUE
) STRICT;

CREATE TABLE outbox (
    operation_key       BLOB    NOT NULL PRIMARY KEY REFERENCES operations (operation_key),
    target_no           INTEGER NOT NULL REFERENCES outbox_targets (target_no),
    terms_no            INTEGER NOT NULL REFERENCES outbox_terms (terms_no),
    -- 0: queued; 1: leased; 2: sending; 3: delivered; 4: dead letter; 5: parked; 6: in doubt;
    -- 7: cancelled.
    state               INTEGER NOT NULL,
    fence               INTEGER NOT NULL,
    -- Who holds it, while it is leased or being sent.
    lease_boot          BLOB,
    lease_until_ms      INTEGER,
    lease_probe         INTEGER,
    attempts            INTEGER NOT NULL,
    attempt_limit       INTEGER NOT NULL,
    -- Attempts that may have taken effect.
    unknown             INTEGER NOT NULL,
    lookups             INTEGER NOT NULL,
    first_dispatch_ms   INTEGER,
    last_send_until_ms  INTEGER,
    -- While it is queued, and never else.
    next_attempt_ms     INTEGER,
    deliver_by_ms       INTEGER,
    error_class         BLOB,
    error_words         BLOB,
    -- While it is parked. 1: principal revoked; 2: tenant revoked; 3: target unknown; 4: account
    -- changed.
    park                INTEGER,
    external_id         BLOB,
    -- By a person. 1: cancelled; 2: abandoned; 3: resolved.
    ended               INTEGER,
    late_contradiction  INTEGER NOT NULL,
    created_at_ms       INTEGER NOT NULL,
    updated_at_ms       INTEGER NOT NULL,
    -- 1: set aside, because it fails its checks or by hand; nothing in the row is believed.
    quarantined         INTEGER NOT NULL DEFAULT 0,
    -- A digest of the rest of the row.
    row_check           BLOB    NOT NULL CHECK (length(row_check) = 16)
) STRICT, WITHOUT ROWID;

-- What can be claimed, the earliest first. An item that has ended is in none of these.
CREATE INDEX outbox_due ON outbox (target_no, next_attempt_ms, operation_key)
    WHERE next_attempt_ms IS NOT NULL AND quarantined = 0;

-- What is held, the lease that ends first before the others.
CREATE INDEX outbox_leases ON outbox (target_no, lease_until_ms, operation_key)
    WHERE lease_until_ms IS NOT NULL AND quarantined = 0;

-- What is held back, by the reason.
CREATE INDEX outbox_parked ON outbox (park, target_no, operation_key)
    WHERE park IS NOT NULL AND quarantined = 0;

-- The rendered requests, until retention takes them together with the results.
CREATE TABLE outbox_requests (
    operation_key   BLOB    NOT NULL PRIMARY KEY REFERENCES outbox (operation_key),
    -- A digest of the key and the request.
    row_check       BLOB    NOT NULL CHECK (length(row_check) = 16),
    request         BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER outbox_requests_stay BEFORE UPDATE ON outbox_requests
BEGIN
    SELECT RAISE(ABORT, 'frozen requests are never changed');
END;

-- Who may not write any more. An empty principal: all of the tenant.
CREATE TABLE outbox_revocations (
    tenant          BLOB    NOT NULL,
    principal       BLOB    NOT NULL,
    since_ms        INTEGER NOT NULL,
    who             BLOB    NOT NULL,
    reason          BLOB    NOT NULL,
    PRIMARY KEY (tenant, principal)
) STRICT, WITHOUT ROWID;

-- What operators ordered of targets, principals and tenants.
CREATE TABLE outbox_orders (
    order_no        INTEGER PRIMARY KEY,
    at_ms           INTEGER NOT NULL,
    kind            BLOB    NOT NULL,
    -- The target, the tenant, or the tenant and the principal.
    subject         BLOB    NOT NULL,
    principal       BLOB,
    who             BLOB    NOT NULL,
    reason          BLOB    NOT NULL
) STRICT;

CREATE TRIGGER outbox_orders_stay BEFORE UPDATE ON outbox_orders
BEGIN
    SELECT RAISE(ABORT, 'orders on record are never changed');
END;

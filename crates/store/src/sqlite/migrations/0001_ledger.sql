-- The ledger. Times are milliseconds since 1970-01-01T00:00:00Z on the ledger's clock. Identities,
-- names, results and notes are BLOBs: UTF-8 text in which U+0000 is legal.

CREATE TABLE ledger (
    one             INTEGER PRIMARY KEY CHECK (one = 1),
    version         INTEGER NOT NULL,
    -- The oldest schema version that a binary must know to open this file.
    min_compatible  INTEGER NOT NULL,
    backend_id      BLOB    NOT NULL,
    incarnation     INTEGER NOT NULL,
    -- No transaction is stamped with an earlier time.
    high_water_ms   INTEGER NOT NULL,
    -- IDs that carry an older time and have no record are expired.
    horizon_ms      INTEGER NOT NULL
) STRICT;

-- The fingerprint keys that the ledger was used with, each known by a value that tells nothing
-- about it.
CREATE TABLE keys (
    key_id          INTEGER PRIMARY KEY,
    check_value     BLOB    NOT NULL CHECK (length(check_value) = 16),
    first_seen_ms   INTEGER NOT NULL
) STRICT;

CREATE TABLE tenants (
    tenant_no       INTEGER PRIMARY KEY,
    name            BLOB    NOT NULL UNIQUE
) STRICT;

CREATE TABLE operations (
    -- A UUIDv7 that the engine makes: rows are appended in order of time.
    operation_key       BLOB    NOT NULL CHECK (length(operation_key) = 16),
    tenant_no           INTEGER NOT NULL REFERENCES tenants (tenant_no),
    -- 1: a UUIDv7's own bytes; 2: the first half of the SHA-256 of the ID.
    id_kind             INTEGER NOT NULL CHECK (id_kind IN (1, 2)),
    id_bytes            BLOB    NOT NULL CHECK (length(id_bytes) = 16),
    operation_id        BLOB    NOT NULL,
    principal           BLOB    NOT NULL,
    tool_id             BLOB    NOT NULL,
    tool_version        BLOB    NOT NULL,
    -- 1: strict-v1; 2: jcs-v1.
    profile             INTEGER NOT NULL,
    key_id              INTEGER NOT NULL,
    fingerprint         BLOB    NOT NULL CHECK (length(fingerprint) = 32),
    call_fingerprint    BLOB    NOT NULL CHECK (length(call_fingerprint) = 32),
    -- 0: in progress; 1: applied; 2: partial; 3: not applied; 4: in doubt.
    state               INTEGER NOT NULL,
    -- Of an operation in progress. 1: claimed; 2: dispatched; 3: first step committed. Else 0.
    phase               INTEGER NOT NULL,
    boot_id             BLOB    NOT NULL CHECK (length(boot_id) = 16),
    fence               INTEGER NOT NULL,
    lease_until_ms      INTEGER NOT NULL,
    effect_table        BLOB,
    effect_row          INTEGER,
    effect_digest       BLOB,
    -- The text of one JSON value.
    result              BLOB,
    nonce               BLOB    NOT NULL CHECK (length(nonce) = 16),
    created_at_ms       INTEGER NOT NULL,
    authority_ends_ms   INTEGER,
    settled_at_ms       INTEGER,
    retention_ms        INTEGER NOT NULL,
    retention_ends_ms   INTEGER,
    purged              INTEGER NOT NULL DEFAULT 0,
    -- 1: by an operator, proved; 2: by an operator, unproved.
    resolution          INTEGER,
    -- 1: set aside by hand; nothing in the row is believed.
    quarantined         INTEGER NOT NULL DEFAULT 0,
    -- A digest of the rest of the row. Zeros, which no digest is, while a transaction is at it.
    row_check           BLOB    NOT NULL CHECK (length(row_check) = 16),
    PRIMARY KEY (operation_key)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX operations_by_id ON operations (tenant_no, id_kind, id_bytes);

CREATE TABLE audit_events (
    operation_key   BLOB    NOT NULL REFERENCES operations (operation_key),
    seq             INTEGER NOT NULL,
    at_ms           INTEGER NOT NULL,
    kind            BLOB    NOT NULL,
    identity        BLOB    NOT NULL,
    who             BLOB    NOT NULL,
    reason          BLOB,
    proof           BLOB,
    PRIMARY KEY (operation_key, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER audit_events_stay BEFORE UPDATE ON audit_events
BEGIN
    SELECT RAISE(ABORT, 'audit events are never changed');
END;

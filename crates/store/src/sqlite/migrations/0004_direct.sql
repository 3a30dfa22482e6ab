-- Direct operations: effects that are sent while their caller waits. Their tables begin with `direct`.

CREATE TABLE directs (
    operation_key       BLOB    NOT NULL PRIMARY KEY REFERENCES operations (operation_key),
    -- Where its requests go.
    upstream            BLOB    NOT NULL,
    -- 1: the call brought no ID and was given one.
    minted              INTEGER NOT NULL,
    -- As in its operation: what an equal call without an ID is found by.
    created_at_ms       INTEGER NOT NULL,
    call_fingerprint    BLOB    NOT NULL CHECK (length(call_fingerprint) = 32),
    -- The call fingerprint, while an equal call without an ID may join an operation that was minted.
    join_slot           BLOB,
    -- When a reply with its result was last written to a live caller. NULL: unanswered.
    answered_at_ms      INTEGER,
    -- The operation that it is a wanted repeat of.
    repeat_of           BLOB,
    -- Its latest request, counted from 1, and that request's fingerprint.
    leg                 INTEGER NOT NULL,
    leg_digest          BLOB    NOT NULL CHECK (length(leg_digest) = 32),
    -- Until when a request of it may have left.
    last_send_until_ms  INTEGER,
    late_contradiction  INTEGER NOT NULL,
    -- 1: as its operation, in doubt.
    in_doubt            INTEGER NOT NULL,
    -- A digest of the rest of the row.
    row_check           BLOB    NOT NULL CHECK (length(row_check) = 16)
) STRICT, WITHOUT ROWID;

-- One operation that was made without an ID for one call, until it is answered, or too old, or wanted
-- again.
CREATE UNIQUE INDEX directs_slots ON directs (join_slot) WHERE join_slot IS NOT NULL;

-- What an equal call without an ID may join, the oldest first.
CREATE INDEX directs_unanswered ON directs (call_fingerprint, created_at_ms, operation_key)
    WHERE answered_at_ms IS NULL;

-- Whoever wants an operation repeated twice gets one repeat.
CREATE UNIQUE INDEX directs_repeats ON directs (repeat_of) WHERE repeat_of IS NOT NULL;

-- What to look for at the upstreams.
CREATE INDEX directs_in_doubt ON directs (upstream, operation_key) WHERE in_doubt = 1;

-- What is in progress, by the time at which anybody may move it: when its lease has ended, and, if
-- nothing was sent, a day (86,400,000 ms) after it began.
CREATE INDEX directs_due ON operations (
    CASE phase WHEN 1 THEN max(lease_until_ms, created_at_ms + 86400000) ELSE lease_until_ms END
) WHERE nature = 3 AND state = 0 AND quarantined = 0;

-- The upstreams' answers, until retention takes them together with the results.
CREATE TABLE direct_replies (
    operation_key   BLOB    NOT NULL REFERENCES directs (operation_key),
    leg             INTEGER NOT NULL,
    leg_digest      BLOB    NOT NULL CHECK (length(leg_digest) = 32),
    -- 1: result; 2: error; 3: asks for input; 4: names a task.
    kind            INTEGER NOT NULL,
    -- The protocol revision that was spoken.
    revision        BLOB    NOT NULL,
    -- Of an answer that asks for input: until when a continuation may follow.
    asked_until_ms  INTEGER,
    -- A digest of the rest, and of the answer as it was given.
    row_check       BLOB    NOT NULL CHECK (length(row_check) = 16),
    -- 0: as it was given; 1: DEFLATE (RFC 1951). How long it was given, in bytes.
    encoding        INTEGER NOT NULL,
    length          INTEGER NOT NULL,
    reply           BLOB    NOT NULL,
    PRIMARY KEY (operation_key, leg)
) STRICT, WITHOUT ROWID;

-- What a later look at the upstream needs to know of a call, until retention takes it.
CREATE TABLE direct_memos (
    operation_key   BLOB    NOT NULL PRIMARY KEY REFERENCES directs (operation_key),
    -- A digest of the key and the memo.
    row_check       BLOB    NOT NULL CHECK (length(row_check) = 16),
    memo            BLOB    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER direct_memos_stay BEFORE UPDATE ON direct_memos
BEGIN
    SELECT RAISE(ABORT, 'memos are never changed');
END;

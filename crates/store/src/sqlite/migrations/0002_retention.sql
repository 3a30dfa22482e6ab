-- Retention: by which clock purges go, how far they have come, and what they did. All in the ledger's
-- own row, so that no name is taken from an embedder. NULL until the first look.

-- The time that purges go by, and the last look at the clocks that found them right: the ledger's
-- time, the wall clock, the boot's clock, and which boot that was.
ALTER TABLE ledger ADD COLUMN purge_time_ms INTEGER;
ALTER TABLE ledger ADD COLUMN seen_ledger_ms INTEGER;
ALTER TABLE ledger ADD COLUMN seen_wall_ms INTEGER;
ALTER TABLE ledger ADD COLUMN seen_boot_ms INTEGER;
ALTER TABLE ledger ADD COLUMN seen_boot BLOB;

-- Since when nothing is purged (on the wall clock), and by how much a clock had jumped.
ALTER TABLE ledger ADD COLUMN stopped_at_ms INTEGER;
ALTER TABLE ledger ADD COLUMN stopped_by_ms INTEGER;

-- The last operator who said that the ledger's time is right, and when (the ledger's time).
ALTER TABLE ledger ADD COLUMN confirmed_at_ms INTEGER;
ALTER TABLE ledger ADD COLUMN confirmed_by BLOB;

-- How far records were looked through for results to purge, and from where and when those are
-- looked at again that were passed over.
ALTER TABLE ledger ADD COLUMN scan_after BLOB;
ALTER TABLE ledger ADD COLUMN rescan_after BLOB;
ALTER TABLE ledger ADD COLUMN rescan_at_ms INTEGER;

ALTER TABLE ledger ADD COLUMN results_purged INTEGER NOT NULL DEFAULT 0;
ALTER TABLE ledger ADD COLUMN tombstones_purged INTEGER NOT NULL DEFAULT 0;

//! Clocks that run, jump, stand, and come from other boots.

use super::*;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
const YEAR_MS: i64 = 365 * DAY_MS;
const START_MS: i64 = 1_780_272_000_000;

/// One look: what the ledger's time and the wall clock show after the start, how much of the boot's
/// time has passed, and which boot it is.
#[derive(Debug, Clone, Copy)]
struct At(i64, i64, i64, u8);

/// What happens, the clocks at opening, the looks, and the purges' time at each look.
type Case = (&'static str, At, &'static [At], &'static [Option<i64>]);

fn reading(At(ledger, wall, boot_ms, boot): At) -> Reading {
    Reading {
        ledger: Timestamp::from_ms(START_MS + ledger),
        wall: Timestamp::from_ms(START_MS + wall),
        since_boot: Duration::from_millis(boot_ms.unsigned_abs()),
        boot: [boot; 16],
    }
}

/// The purges' time after the start at each look, `None` while they are stopped.
fn run(opened: At, looks: &[At]) -> Vec<Option<i64>> {
    let mut clock = PurgeClock::default();
    let time = |clock: &PurgeClock| clock.time().map(|time| time.as_ms() - START_MS);
    looks
        .iter()
        .map(|at| {
            clock = clock.look(&reading(*at), &reading(opened));
            time(&clock)
        })
        .collect()
}

#[test]
fn purges_go_by_time_that_passed() {
    // Promise: purges' time never runs ahead of the ledger's and never further than the time that
    // passed and an hour; a clock that jumped stops it.
    const OPENED: At = At(0, 0, 5, 1);
    let cases: &[Case] = &[
        ("time passes", OPENED, &[At(DAY_MS, DAY_MS, 5 + DAY_MS, 1)], &[Some(DAY_MS)]),
        (
            "a small correction is followed",
            OPENED,
            &[At(HOUR_MS, HOUR_MS, 5, 1), At(HOUR_MS, 1, 5, 1), At(HOUR_MS, 2, 6, 1)],
            &[Some(HOUR_MS); 3],
        ),
        ("set ahead", OPENED, &[At(HOUR_MS + 1, HOUR_MS + 1, 5, 1)], &[None]),
        ("set ahead before the first look", OPENED, &[At(YEAR_MS, YEAR_MS, 5, 1)], &[None]),
        ("set back", OPENED, &[At(0, 0, 5, 1), At(1, -HOUR_MS, 6, 1)], &[Some(0), None]),
        ("ahead and back between two looks", OPENED, &[At(YEAR_MS, 0, 5, 1)], &[None]),
        (
            "ahead before it was opened, and back",
            At(YEAR_MS, 0, 5, 1),
            &[At(YEAR_MS, 0, 5, 1)],
            &[None],
        ),
        (
            "stopped until somebody looks",
            OPENED,
            &[At(YEAR_MS, YEAR_MS, 5, 1), At(DAY_MS, DAY_MS, 5 + DAY_MS, 1)],
            &[None, None],
        ),
        (
            "a ledger that nobody used for a month, the machine running",
            OPENED,
            &[At(0, 0, 5, 1), At(30 * DAY_MS, 30 * DAY_MS, 5 + 30 * DAY_MS, 1)],
            &[Some(0), Some(30 * DAY_MS)],
        ),
        (
            "a reboot of some minutes",
            OPENED,
            &[At(0, 0, 5, 1), At(HOUR_MS / 6, HOUR_MS / 6, 0, 2)],
            &[Some(0), Some(HOUR_MS / 6)],
        ),
        (
            "a night switched off is caught up by an hour at each look",
            OPENED,
            &[
                At(0, 0, 5, 1),
                At(3 * HOUR_MS, 3 * HOUR_MS, 0, 2),
                At(3 * HOUR_MS + 9, 3 * HOUR_MS + 9, 9, 2),
                At(3 * HOUR_MS + 9, 3 * HOUR_MS + 9, 9, 2),
            ],
            &[Some(0), Some(HOUR_MS), Some(2 * HOUR_MS + 9), Some(3 * HOUR_MS + 9)],
        ),
        ("back over a reboot", OPENED, &[At(0, 0, 5, 1), At(0, -DAY_MS, 0, 2)], &[Some(0), None]),
        (
            "ahead and back, then a reboot",
            OPENED,
            &[At(0, 0, 5, 1), At(YEAR_MS, DAY_MS, 0, 2)],
            &[Some(0), None],
        ),
        (
            "the boot's clock went back under one name",
            OPENED,
            &[At(0, 0, 5, 1), At(2 * DAY_MS, 2 * DAY_MS, 0, 1)],
            &[Some(0), Some(HOUR_MS)],
        ),
    ];
    for (name, opened, looks, expected) in cases {
        assert_eq!(run(*opened, looks), *expected, "{name}");
    }
}

#[test]
fn a_confirmed_clock_goes_on_from_there() {
    // Promise: after an operator's word purges go by the ledger's time, even while it still runs
    // ahead of a wall clock that was set back; who and when stay on record.
    let opened = reading(At(0, 0, 5, 1));
    let stopped = PurgeClock::default().look(&reading(At(YEAR_MS, 0, 5, 1)), &opened);
    let jump = ClockJump { noticed_at: opened.wall, by_ms: YEAR_MS };
    assert_eq!((stopped.stopped, stopped.time()), (Some(jump), None));
    let confirmed = PurgeClock::confirm(&reading(At(YEAR_MS + 9, 9, 14, 1)), "olga");
    let at = Timestamp::from_ms(START_MS + YEAR_MS + 9);
    assert_eq!(confirmed.confirmed, Some(ClockConfirmed { at, by: "olga".into() }));
    assert_eq!(confirmed.time(), Some(at));
    let later = confirmed.look(&reading(At(YEAR_MS + 20, 20, 25, 1)), &opened);
    assert_eq!(later.time(), Some(Timestamp::from_ms(START_MS + YEAR_MS + 20)));
    assert_eq!(later.confirmed, confirmed.confirmed);
}

#[test]
fn the_horizon_only_moves_forward_and_stays_behind() {
    // Promise: the horizon is at most the purges' time less its span, and nothing takes it back.
    let at = reading(At(0, 0, 5, 1));
    let clock = PurgeClock::default().look(&at, &at);
    let day = Duration::from_secs(86_400);
    let start = Timestamp::from_ms(START_MS);
    assert_eq!(clock.horizon(Timestamp::from_ms(0), day), earlier(start, day));
    assert_eq!(clock.horizon(start, day), start);
    let stopped = clock.look(&reading(At(YEAR_MS, YEAR_MS, 5, 1)), &at);
    assert_eq!(stopped.horizon(Timestamp::from_ms(7), day), Timestamp::from_ms(7));
}

//! Connections of a standby to its primary.

use std::time::Duration;

use polychron_base::clock::{Clock, SystemClock};
use polychron_engine::Error;
use polychron_engine::definitions::StoredCatalog;
use polychron_log::disk::{Disk, Files};
use polychron_log::ship::net::Connection;
use polychron_log::ship::{Apply, Base, Changes, Point, Showing, Standby, StandbyOpening, Trouble, Unshown};
use polychron_log::{Progress, Settings};

use super::status::Shared;

/// How long a standby waits at first before it connects again, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// How often a standby that receives nothing more says that it is there.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long an opening waits for its primary, and for something that it could show.
const OPENING: Duration = Duration::from_secs(30);

/// While a standby's log has no point yet.
struct Unseen;

impl Apply for Unseen {
    fn apply(&mut self, _: &StoredCatalog, _: &Changes, _: &Point) -> Result<(), Error> {
        Ok(())
    }
}

/// Connects to the primary, and follows it until the connection ends, the standby is closed, or this is enough. What became durable goes to `show`.
fn follow<D: Disk + Clone>(
    standby: &mut Standby<D>,
    primary: &str,
    shared: &Shared,
    mut show: impl FnMut(Unshown) -> Result<bool, Trouble>,
) -> Result<(), Trouble> {
    let limit = standby.silence_limit();
    let pause = HEARTBEAT.min(limit / 4);
    let mut connection = Connection::open(primary, limit)?;
    connection.send(&standby.hello()?)?;
    while !shared.is_over() {
        // While readers hold up what came before, nothing more is received.
        while !shared.has_room_within(pause) {
            standby.repeat().map_or(Ok(()), |message| connection.send(&message))?;
        }
        let bytes = connection.receive()?;
        let is_empty = bytes.is_empty();
        let taken = standby.receive(bytes);
        if standby.silence() > limit {
            return Err(Trouble::Lost("the primary has said nothing for a while".to_owned()));
        }
        if is_empty && taken.is_ok() {
            continue;
        }
        let (received, primary) = standby.epochs();
        let is_connected = taken.is_ok();
        // Before the primary hears of it: whoever chooses a standby by its status finds what was acknowledged.
        shared.change(|status| {
            (status.received, status.primary, status.is_connected) = (received, primary, is_connected);
            status.trouble = status.trouble.take().filter(|_| !is_connected);
        });
        // Whether readers see it does not matter to who waits for it to be durable.
        let said = standby.acknowledgement().map_or(Ok(()), |message| connection.send(&message));
        let is_enough = show(standby.take_unshown());
        taken.and(said)?;
        if is_enough? {
            return Ok(());
        }
    }
    Ok(())
}

/// Reports the end of following if the thread that follows panics.
struct Ends<'s>(&'s Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end_with(Trouble::Stopped("its thread has panicked".to_owned()));
        }
    }
}

/// Follows the primary until the standby is closed, or has ended by a failure of its own.
pub(super) fn follow_on<D: Disk + Clone>(standby: &mut Standby<D>, primary: &str, shared: &Shared) {
    let (_ends, mut pause) = (Ends(shared), FIRST_PAUSE);
    while !shared.is_over() {
        let before = standby.epochs().0;
        let followed = follow(standby, primary, shared, |unshown| {
            if !unshown.is_empty() {
                shared.show(unshown);
            }
            shared.ended().map_or(Ok(false), Err)
        });
        // What cannot be shown was told.
        if shared.ended().is_some() {
            return;
        }
        let trouble = followed.err();
        shared.change(|status| {
            (status.is_connected, status.trouble) = (false, trouble.as_ref().map(Trouble::to_string));
        });
        if let Some(trouble) = trouble.filter(|_| standby.has_ended()) {
            return shared.end_with(trouble);
        }
        pause = if standby.epochs().0 > before { FIRST_PAUSE } else { (2 * pause).min(LONGEST_PAUSE) };
        shared.pause(pause);
    }
}

/// Shows what has come, until the standby is closed, or that fails.
pub(super) fn show_on(showing: &mut Showing, apply: &mut dyn Apply, shared: &Shared) {
    let _ends = Ends(shared);
    while let Some(unshown) = shared.to_show() {
        if let Err(trouble) = showing.show(unshown, apply) {
            return shared.end_with(trouble);
        }
        let lapse = showing.lapse().map(str::to_owned);
        shared.change(|status| status.unshown = lapse);
    }
}

/// Has the files of a new standby sent.
fn receive_base<D: Disk + Clone>(mut base: Base<D>, primary: &str, limit: Duration) -> Result<(), Trouble> {
    let mut connection = Connection::open(primary, limit)?;
    connection.send(&base.hello())?;
    while !base.receive(connection.receive()?)? {
        if base.silence() > limit {
            return Err(Trouble::Lost("the primary has said nothing for a while".to_owned()));
        }
    }
    Ok(())
}

/// Opens the files of a standby, which are made or gone on with first where there is no point yet that readers could see.
pub(super) fn open_files<'r, D: Disk + Clone>(
    files: &Files<D>,
    settings: &Settings,
    primary: &str,
    report: &'r (dyn Fn(Progress) + Sync),
) -> Result<StandbyOpening<'r, D>, Trouble> {
    let clock = SystemClock::new();
    let shared = Shared::default();
    let (mut pause, mut begun_ns) = (FIRST_PAUSE, 0);
    loop {
        let is_late = || clock.now_ns() - begun_ns > OPENING.as_nanos() as u64;
        let trouble = match Base::begin(files)? {
            Some(base) => receive_base(base, primary, settings.log.silence_limit).err(),
            None => {
                let opening = StandbyOpening::begin(files, settings, report)?;
                if opening.point().is_some() {
                    return Ok(opening);
                }
                let (mut standby, mut showing) = opening.finish();
                let followed = follow(&mut standby, primary, &shared, |unshown| {
                    showing.show(unshown, &mut Unseen)?;
                    Ok(showing.point().is_some() || is_late())
                });
                match followed {
                    Ok(()) if showing.point().is_none() => Some(Trouble::Lost(
                        "transactions that are open there leave nothing that could be shown".to_owned(),
                    )),
                    followed => followed.err(),
                }
            }
        };
        match trouble {
            None => begun_ns = clock.now_ns(),
            Some(trouble) if trouble.is_passing() && !is_late() => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            Some(trouble) => return Err(trouble),
        }
    }
}

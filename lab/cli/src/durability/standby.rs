//! TPC-C at a primary with and without a standby that follows it, and how far the standby is behind.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, UNIX_EPOCH};

use polychron::{
    Database, Durability, Protocol, ProtocolInfo, ProtocolList, ProtocolVisitor, Protocols, StandbyStatus,
};
use polychron_base::clock::{Clock, SystemClock, calendar_time};
use polychron_cli::interrupt;
use polychron_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use polychron_workloads::run::{self, Load, Observer, Report, Settings};
use polychron_workloads::tpcc::{Tpcc, TpccOptions};

use super::{Comparison, Place, Series};

/// How often the log is flushed.
const FLUSHED: Durability = Durability::Eventual(Duration::from_millis(10));
/// How often it is asked how far the standby is.
const LOOK: Duration = Duration::from_millis(2);
/// The shares of what was seen that are shown: this part of it, at most so far behind.
const SHARES: [(&str, f64); 3] = [("half", 0.5), ("99 %", 0.99), ("all", 1.0)];

/// What the runs with a standby have shown, in their sequence.
#[derive(Default)]
struct Shown {
    /// Transactions a second of the last run without one.
    without: f64,
    losses: VecDeque<f64>,
    lags: [VecDeque<f64>; SHARES.len()],
}

/// For one thread and for two: throughput with and without a standby, the loss, and the lag.
pub(super) fn followed<'p>(place: &'p Place<'_>) -> Vec<Comparison<'p>> {
    [1, 2].into_iter().flat_map(|threads| of_threads(place, threads)).collect()
}

fn of_threads<'p>(place: &'p Place<'_>, threads: usize) -> [Comparison<'p>; 3] {
    let shown = Rc::<RefCell<Shown>>::default();
    let told = Rc::clone(&shown);
    let without = Series::new("alone", move || {
        let (rate, _) = measure(place, threads, false)?;
        told.borrow_mut().without = rate;
        Ok(rate)
    });
    let told = Rc::clone(&shown);
    let with = Series::new("with a standby", move || {
        let (rate, mut lags) = measure(place, threads, true)?;
        lags.sort_by(f64::total_cmp);
        let shown = &mut *told.borrow_mut();
        shown.losses.push_back((1.0 - rate / shown.without) * 100.0);
        for (seen, (_, share)) in shown.lags.iter_mut().zip(SHARES) {
            let at = ((lags.len() as f64 * share) as usize).min(lags.len().saturating_sub(1));
            seen.push_back(lags.get(at).copied().unwrap_or(f64::NAN));
        }
        Ok(rate)
    });
    let told = Rc::clone(&shown);
    let loss = Series::new("with a standby", move || next(&mut told.borrow_mut().losses));
    let lags = SHARES.into_iter().enumerate().map(|(number, (name, _))| {
        let told = Rc::clone(&shown);
        Series::new(name, move || next(&mut told.borrow_mut().lags[number]))
    });
    let what = format!("TPC-C, {threads} threads");
    [
        Comparison::new(what.clone(), "transactions a second", vec![without, with]),
        Comparison::new(format!("{what}: loss"), "percent", vec![loss]),
        Comparison::new(format!("{what}: how far behind readers are"), "milliseconds", lags.collect()),
    ]
}

fn next(shown: &mut VecDeque<f64>) -> Result<f64, String> {
    shown.pop_front().ok_or_else(|| "nothing was measured".to_owned())
}

/// Transactions a second, and how far behind the standby's readers were, in milliseconds.
fn measure(place: &Place<'_>, threads: usize, has_standby: bool) -> Result<(f64, Vec<f64>), String> {
    let directory = place.directory()?;
    let seconds = place.given.seconds;
    let settings = Settings { threads, seconds, warmup_seconds: seconds / 4.0, ..Settings::default() };
    let options = &TpccOptions { warehouses: threads as u16, ..TpccOptions::default() };
    let (settings, directory, stop) = (&settings, directory.path(), &interrupt::STOP);
    let run = Run { options, settings, directory, has_standby, stop };
    let (report, lags) = Protocols::visit(&place.given.protocol, run).map_err(|unknown| unknown.to_string())??;
    Ok((report.committed_tps, lags))
}

/// A run of TPC-C at a primary in a directory, with a standby or alone. Answers how far behind that was, too.
pub(crate) struct Run<'r> {
    pub(crate) options: &'r TpccOptions,
    pub(crate) settings: &'r Settings,
    pub(crate) directory: &'r Path,
    pub(crate) has_standby: bool,
    pub(crate) stop: &'r AtomicBool,
}

impl ProtocolVisitor for Run<'_> {
    type Output = Result<(Report, Vec<f64>), String>;

    fn visit<P: Protocol>(self, _: &ProtocolInfo) -> Self::Output {
        let Self { options, settings, directory, has_standby, stop } = self;
        let said = |error: polychron::Error| error.to_string();
        let builder = Database::builder().with::<P>().durability(FLUSHED);
        let builder = if has_standby { builder.serve_standbys("127.0.0.1:0") } else { builder };
        let primary = builder.create(directory.join("primary")).map_err(said)?;
        let address = primary.standby_address().map(|address| address.to_string());
        let open = |address: String| Database::builder().open_standby(directory.join("standby"), &address);
        let standby: Option<Database> = address.map(open).transpose().map_err(said)?;
        let watch = Watch::new(standby.as_ref(), stop);
        let (report, lags) = std::thread::scope(|scope| {
            let looking = scope.spawn(|| watch.look(settings.warmup_seconds));
            let report = run::run::<P, Tpcc>(primary.protocol(), options, settings, stop, &watch);
            watch.ends();
            (report, looking.join().expect("it does not panic"))
        });
        let report = report.map_err(|error| error.to_string())?;
        if let Some(trouble) = watch.status().and_then(|status| status.trouble) {
            return Err(format!("the standby has lost its primary: {trouble}"));
        }
        if !report.interrupted && !report.passed() {
            return Err(format!("the consistency check failed: {}", report.checks));
        }
        standby.map_or(Ok(()), Database::close).map_err(said)?;
        primary.close().map_err(said)?;
        Ok((report, lags))
    }
}

/// Watches a run, and the standby meanwhile.
struct Watch<'s> {
    standby: Option<&'s Database>,
    stop: &'s AtomicBool,
    clock: SystemClock,
    /// When the run began behind the loading, and when its transactions had ended.
    begun_ns: AtomicU64,
    ended_ns: AtomicU64,
}

impl<'s> Watch<'s> {
    fn new(standby: Option<&'s Database>, stop: &'s AtomicBool) -> Self {
        let never = || AtomicU64::new(u64::MAX);
        Self { standby, stop, clock: SystemClock::new(), begun_ns: never(), ended_ns: never() }
    }

    fn status(&self) -> Option<StandbyStatus> {
        self.standby.and_then(Database::standby)
    }

    /// How far behind readers are again and again, while the run is measured: of what they see it is told when the primary wrote it.
    fn look(&self, warmup_seconds: f64) -> Vec<f64> {
        let mut lags = Vec::new();
        while self.ended_ns.load(Ordering::Relaxed) == u64::MAX {
            std::thread::sleep(LOOK);
            let begin_ns = self.begun_ns.load(Ordering::Relaxed).saturating_add((warmup_seconds * 1e9) as u64);
            if self.clock.now_ns() >= begin_ns
                && let Some(status) = self.status()
            {
                let now_ns = calendar_time().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as u64);
                lags.push(now_ns.saturating_sub(status.seen_ns) as f64 / 1e6);
            }
        }
        lags
    }

    fn ends(&self) {
        self.ended_ns.fetch_min(self.clock.now_ns(), Ordering::Relaxed);
    }
}

impl Observer for Watch<'_> {
    fn loaded(&self, _: Load) {
        // What was loaded went to the standby, too.
        while self.status().is_some_and(|status| status.epochs_behind > 0 && status.trouble.is_none())
            && !self.stop.load(Ordering::Relaxed)
        {
            std::thread::sleep(LOOK);
        }
        self.begun_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    fn checking(&self) {
        self.ends();
    }
}

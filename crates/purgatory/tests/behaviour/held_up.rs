//! Threads that are held up just after they have read the time, while others go on.

use std::process::{Command, Stdio};

use crate::support::*;

/// The name of the thread to hold up; the channels by which it reports its read and is released.
type Hold = (&'static str, mpsc::Sender<()>, mpsc::Receiver<()>);

/// A clock that a test sets.
#[derive(Clone, Debug, Default)]
struct Held {
    now_ns: Arc<AtomicU64>,
    hold: Arc<Mutex<Option<Hold>>>,
}

impl Held {
    fn set_us(&self, us: u64) {
        self.now_ns.store(us * 1000, SeqCst);
    }

    /// Holds a thread up at its next clock read. Returns the channels to learn of that read, and to
    /// release the thread.
    fn hold(&self, name: &'static str) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (look, has_looked) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        *self.hold.lock().unwrap() = Some((name, look, may_go));
        (has_looked, go)
    }

    fn purgatory(&self) -> (SystemTimer, Purgatory<&'static str, Op>) {
        let timer = system_timer(|builder| builder.clock(self.clone()).name("t").inline());
        let builder = Purgatory::builder("test").timer(&timer).shards(1);
        (timer, builder.build().unwrap())
    }
}

impl Clock for Held {
    fn now_ns(&self) -> u64 {
        let now_ns = self.now_ns.load(SeqCst);
        let mut hold = self.hold.lock().unwrap();
        let here = |(name, ..): &Hold| thread::current().name() == Some(name);
        if hold.as_ref().is_some_and(here) {
            let (_, look, may_go) = hold.take().unwrap();
            drop(hold);
            look.send(()).unwrap();
            may_go.recv().unwrap();
        }
        now_ns
    }
}

/// The reaper has read the time in tick 5. Then tick 6 begins, and two operations are parked, one
/// of them due in tick 6: that one does not expire early.
#[test]
fn late_reaper_turn_rechecks_nothing() {
    let clock = Held::default();
    clock.set_us(5_800);
    let (_timer, purgatory) = clock.purgatory();
    let (has_looked, go) = clock.hold("t-reaper");
    Probe::parked(&purgatory, &["other"], MINUTE); // wakes the reaper
    has_looked.recv().unwrap();
    clock.set_us(5_900);
    let probe = Probe::new();
    let others = purgatory.clone();
    let ahead = clock.clone();
    let mut first = true;
    let operation = probe.operation().on_check(move || {
        if std::mem::take(&mut first) {
            ahead.set_us(6_100);
            others.park(Probe::new().operation(), &["other"], MINUTE); // as another thread may
        }
    });
    let at = Timeout::At(Moment::from_nanos(5_950_000));
    purgatory.park(operation, &["key"], at);
    probe.make_ready(); // no event
    go.send(()).unwrap();
    while !probe.ended() {
        thread::yield_now(); // for ever, if it were lost
    }
    assert_eq!(probe.endings(), [Outcome::Expired]);
    assert_eq!(probe.checks(), 1);
    assert_eq!(purgatory.stats().missed_events, 0);
}

/// In a process of its own with a closed standard error, a check does not end, and an event comes
/// two seconds later.
#[test]
fn stuck_check_warning_survives_a_closed_stderr() {
    const CHILD: &str = "STDERR_IS_CLOSED";
    if std::env::var_os(CHILD).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let name = "held_up::stuck_check_warning_survives_a_closed_stderr";
        again.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
        again.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = again.spawn().unwrap();
        drop(child.stderr.take());
        assert!(child.wait().unwrap().success());
        return;
    }
    let clock = Held::default();
    let (_timer, purgatory) = clock.purgatory();
    let checking = Stop::armed();
    let parks = purgatory.clone();
    let in_check = checking.clone();
    let stuck = Probe::new().operation().on_check(move || in_check.here());
    let stuck = thread::spawn(move || parks.try_complete_else_watch(stuck, &["stuck"], MINUTE));
    checking.meanwhile(|| {
        clock.set_us(2_000_000);
        assert_eq!(purgatory.check_and_complete(&"another"), 0);
    });
    assert!(stuck.join().is_ok());
}

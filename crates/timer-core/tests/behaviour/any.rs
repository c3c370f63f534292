//! `Timer` and `Moment`: a struct of a user's, with a timer of either kind in it.

use crate::support::*;

/// No type parameter, and nothing that tells it is under test.
struct Sessions {
    timer: Timer,
    opened: Moment,
    expiries: TaskTimer<u32>,
}

impl Sessions {
    fn new(timer: impl Into<Timer>, expired: mpsc::Sender<u32>) -> Self {
        let timer = timer.into();
        Sessions {
            opened: timer.now(),
            expiries: timer.with_handler(move |id| expired.send(id).unwrap()),
            timer,
        }
    }

    fn open(&self, id: u32, limit: Duration) {
        let deadline = self.timer.now() + limit;
        self.expiries.schedule_at(deadline, id).unwrap();
    }

    fn age(&self) -> Duration {
        self.timer.now().since(self.opened)
    }

    fn pause(&self) -> Sleep {
        self.timer.sleep_until(self.opened + SECOND)
    }
}

#[test]
fn one_struct_runs_on_a_system_or_manual_timer() {
    let (send, expired) = mpsc::channel();
    let system = SystemTimer::new().unwrap();
    let sessions = Sessions::new(system.clone(), send.clone());
    sessions.open(1, MS);
    assert_eq!(expired.recv(), Ok(1));
    assert!(sessions.age() >= MS);
    system.shutdown(Duration::MAX);
    assert!(sessions.timer.schedule(MS, || ()).is_err(), "one timer");

    let manual = ManualTimer::new();
    manual.advance(SECOND);
    let sessions = Sessions::new(manual.clone(), send);
    sessions.open(2, 30 * SECOND);
    let mut pause = sessions.pause();
    assert!(poll(&mut pause).is_pending());
    manual.advance(29 * SECOND);
    assert_eq!(over(&mut pause), Ok(()));
    assert!(expired.try_recv().is_err());
    manual.advance(SECOND);
    assert_eq!(expired.try_recv(), Ok(2));
    assert_eq!(sessions.age(), 30 * SECOND);
}

#[test]
fn any_timer_does_what_its_timer_does() {
    let manual = ManualTimer::new();
    let timer = Timer::from(manual.clone());
    let mut queue = DelayQueue::new(&timer);
    queue.insert((), MS).unwrap();
    let mut sleep = Box::pin(timeout(timer.sleep(MS), timer.sleep(SECOND)));
    assert!(poll(&mut sleep).is_pending());
    drop(timer); // the others keep it
    manual.advance(MS);
    assert!(over(&mut sleep).is_err());
    assert!(over(&mut Box::pin(queue.next())).is_some());
}

#[test]
fn moments_add_and_subtract_without_overflow() {
    let moment = Moment::from_nanos(7);
    assert_eq!((moment + MS).as_nanos(), 1_000_007);
    assert_eq!((moment + MS).since(moment), MS);
    assert_eq!(moment.since(moment + MS), Duration::ZERO);
    assert_eq!(moment + Duration::MAX, Moment::NEVER);
    assert_eq!(Moment::NEVER + MS, Moment::NEVER);
    assert!(Moment::default() < moment && moment < Moment::NEVER);
    assert_eq!(size_of::<Moment>(), 8);
}

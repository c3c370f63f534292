//! A step, as both sides do it: the choice of its operation, and the state that both sides know.

use std::sync::Arc;

use purgatory::Timeout;

use super::steps::{Act, Key, Pick, Plan, Request, Returned, Saw, Then};

/// The state that both sides know.
#[derive(Default)]
pub struct Known {
    pub quarter_ns: u64,
    /// A flag for each operation of the case, ended or not.
    pub flags: Vec<bool>,
    /// Operations whose ids are known.
    pub ids: Vec<usize>,
    /// Whether no more operations can be parked; `shut_down` tells a shutdown from the last
    /// handle's drop.
    pub closed: bool,
    pub shut_down: bool,
}

impl Known {
    fn set_flag(&mut self, own: Option<usize>, pick: Pick) {
        let numbers: Vec<usize> = (0..self.flags.len()).collect();
        if let Some(number) = pick.of(own, &numbers) {
            self.flags[number] = true;
        }
    }

    /// Forgets the ids of operations that were taken out.
    pub fn forget(&mut self, taken: &[usize]) {
        self.ids.retain(|number| !taken.contains(number));
    }

    fn pick_id(&self, own: Option<usize>, pick: Pick) -> Option<usize> {
        pick.of(own.filter(|own| self.ids.contains(own)), &self.ids)
    }
}

/// A call of the purgatory or its timer.
pub enum Call {
    Park(Arc<Plan>),
    Event(Key),
    EventForOne(Key),
    CancelKey(Key),
    CompleteKey(Key),
    RescheduleKey(Key, Timeout),
    Cancel(usize),
    Complete(usize),
    Reschedule(usize, Timeout),
    Look(usize),
    Take(usize, Then),
    TakeKey(Key),
    /// Lets nanoseconds pass; the wheels advance, or with `Pass` do not.
    Advance(u64),
    Pass(u64),
    Shutdown,
    ShutdownTimer,
    DropHandle,
}

/// One side of a case: the real purgatory, or the reference.
pub trait Side {
    fn known<T>(&mut self, look: impl FnOnce(&mut Known) -> T) -> T;

    fn now_ns(&self) -> u64;

    fn saw(&mut self, saw: Saw);

    /// Runs a job that the executor kept; returns false if there is none.
    fn run_job(&mut self) -> bool;

    fn call(&mut self, call: Call) -> Option<Returned>;

    /// Makes the request of a new operation.
    fn request(&mut self, plan: &Arc<Plan>) -> Request {
        let now_ns = self.now_ns();
        self.known(|known| {
            known.flags.push(false);
            Request::new(plan, now_ns, known)
        })
    }

    /// Does a step, or an act of the check or callback of `own`.
    fn act(&mut self, own: Option<usize>, act: &Act) {
        match act {
            Act::Several(acts) => {
                for act in acts {
                    self.act(own, act);
                }
            }
            Act::ParkMany(count, plan) => {
                let park = Act::Park(plan.clone());
                for _ in 0..*count {
                    self.act(own, &park);
                }
            }
            Act::SetFlag(pick) => self.known(|known| known.set_flag(own, *pick)),
            Act::SetAllFlags => self.known(|known| known.flags.fill(true)),
            // A shutdown may distribute its operations over these jobs in any order.
            Act::RunJobs(_) if own.is_some() && self.known(|known| known.shut_down) => {}
            Act::RunJobs(most) => _ = (0..*most).all(|_| self.run_job()),
            _ => {
                let returned = self.call_for(own, act).and_then(|call| self.call(call));
                if let Some(returned) = returned {
                    self.saw(Saw::Returned(returned));
                }
            }
        }
    }

    /// Returns the call that an act makes; `None` if the operation that it names does not exist.
    fn call_for(&mut self, own: Option<usize>, act: &Act) -> Option<Call> {
        let quarter_ns = self.known(|known| known.quarter_ns);
        Some(match *act {
            Act::Park(ref plan) => Call::Park(plan.clone()),
            Act::Event(key) => Call::Event(key),
            Act::EventForOne(key) => Call::EventForOne(key),
            Act::CancelKey(key) => Call::CancelKey(key),
            Act::CompleteKey(key) => Call::CompleteKey(key),
            Act::RescheduleKey(key, when) => {
                Call::RescheduleKey(key, when.from(self.now_ns(), quarter_ns))
            }
            Act::Cancel(pick) => Call::Cancel(self.known(|known| known.pick_id(own, pick))?),
            Act::Complete(pick) => Call::Complete(self.known(|known| known.pick_id(own, pick))?),
            Act::Reschedule(pick, when) => {
                let number = self.known(|known| known.pick_id(own, pick))?;
                Call::Reschedule(number, when.from(self.now_ns(), quarter_ns))
            }
            Act::Look(pick) => Call::Look(self.known(|known| known.pick_id(own, pick))?),
            Act::Take(pick, then) => {
                Call::Take(self.known(|known| known.pick_id(own, pick))?, then)
            }
            Act::TakeKey(key) => Call::TakeKey(key),
            Act::Advance(quarters) => Call::Advance(quarters.saturating_mul(quarter_ns)),
            Act::Pass(quarters) => Call::Pass(quarters.saturating_mul(quarter_ns)),
            Act::Shutdown => Call::Shutdown,
            Act::ShutdownTimer => Call::ShutdownTimer,
            Act::DropHandle => Call::DropHandle,
            _ => unreachable!("no call: {act:?}"),
        })
    }
}

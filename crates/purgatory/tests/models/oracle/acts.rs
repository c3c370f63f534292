//! The steps, done to the reference.

use purgatory::{Outcome, WaitError};

use super::{
    reference::{DROPPED, Reference, SHUTDOWN, Slot, State, requested},
    steps::{Act, Key, Pick, Returned, Saw, beside},
};

impl Reference {
    pub fn quarter_ns(&self) -> u64 {
        self.tick_ns / 4
    }

    fn pick_id(&self, own: Option<usize>, pick: Pick) -> Option<usize> {
        pick.of(own.filter(|own| self.ids.contains(own)), &self.ids)
    }

    pub fn pick_future(&mut self, own: Option<usize>, pick: Pick) -> Option<usize> {
        let futures: Vec<usize> = self.futures.iter().copied().collect();
        let number = pick.of(own, &futures)?;
        self.futures.remove(&number).then_some(number)
    }

    /// Calls the purgatory by a handle of the caller's own, if there is one to be had.
    fn call(&mut self, call: impl FnOnce(&mut Self) -> Option<Returned>) -> Option<Returned> {
        if !self.handle {
            return None;
        }
        self.handles += 1;
        let returned = call(self);
        self.drop_handle();
        returned
    }

    fn drop_handle(&mut self) {
        self.handles -= 1;
        if self.handles == 0 {
            self.count_if(
                self.goal_ns.is_some() && self.inside,
                "last handle dropped in a callback",
            );
            self.close(&DROPPED);
        }
    }

    fn counted(&mut self, call: impl FnOnce(&mut Self) -> usize) -> Option<Returned> {
        self.call(|model| Some(Returned::Counted(call(model))))
    }

    /// A step, or for `own` a part of its check or callback.
    pub fn act(&mut self, own: Option<usize>, act: &Act) {
        let returned = match act {
            Act::Park(plan) => self.call(|model| model.park(plan)),
            Act::ParkMany(count, plan) => {
                (0..*count).for_each(|_| self.act(own, &Act::Park(plan.clone())));
                None
            }
            Act::Several(acts) => {
                acts.iter().for_each(|act| self.act(own, act));
                None
            }
            Act::SetFlag(pick) => {
                let numbers: Vec<usize> = (0..self.all.len()).collect();
                pick.of(own, &numbers).into_iter().for_each(|number| self.at(number).flag = true);
                None
            }
            Act::SetAllFlags => {
                self.all.iter_mut().for_each(|operation| operation.flag = true);
                None
            }
            Act::Event(key) => {
                self.count_own_event(own, *key);
                self.counted(|model| model.check_and_complete(*key))
            }
            Act::EventForOne(key) => {
                self.count_own_event(own, *key);
                self.counted(|model| usize::from(model.check_and_complete_one(*key)))
            }
            Act::Events(keys) => {
                self.counted(|model| keys.iter().map(|&key| model.check_and_complete(key)).sum())
            }
            Act::Rise(key, by) => {
                let value = self.raise(*key, *by);
                self.counted(|model| model.complete_up_to(*key, value))
            }
            Act::Claim(key, by) => {
                let value = beside(self.raise(*key, 0), *by);
                self.count_if(*by < 0, "the event of a value below the key's");
                self.counted(|model| model.complete_up_to(*key, value))
            }
            Act::CancelKey(key) => self.counted(|model| model.cancel_for_key(*key)),
            Act::Cancel(pick) => self.end_picked(own, *pick, requested("by id")),
            Act::Complete(pick) => self.end_picked(own, *pick, Outcome::Completed),
            Act::Reschedule(pick, when) => self.pick_id(own, *pick).and_then(|number| {
                let timeout = when.from(self.now_ns, self.quarter_ns());
                self.call(|model| Some(Returned::Rescheduled(model.reschedule(number, timeout))))
            }),
            Act::Advance(_) | Act::Pass(_) | Act::ToNext => {
                self.let_time_pass(act);
                None
            }
            Act::Poll(pick) => self.poll(own, *pick),
            Act::DropFuture(pick) => {
                self.pick_future(own, *pick)
                    .into_iter()
                    .for_each(|number| self.drop_future(number));
                None
            }
            Act::Block => own.and_then(|_| self.block(own)),
            // Which of them a shutdown put into one job is not promised.
            Act::RunJob | Act::RunJobs if own.is_some() && self.shut_down => None,
            Act::RunJob | Act::RunJobs => {
                while self.run_job() && matches!(act, Act::RunJobs) {}
                None
            }
            Act::Shutdown => self.call(|model| {
                model.count_if(model.inside, "shutdown in a check or callback");
                model.close(&SHUTDOWN);
                None
            }),
            Act::ShutdownTimer => {
                self.close(&SHUTDOWN);
                None
            }
            Act::DropHandle => {
                if std::mem::take(&mut self.handle) {
                    self.drop_handle();
                }
                None
            }
        };
        self.log.extend(returned.map(Saw::Returned));
    }

    /// A blocking wait inside a check or callback yields what is there, and else is over.
    fn block(&mut self, own: Option<usize>) -> Option<Returned> {
        let number = self.pick_future(own, Pick::Recent(0))?;
        if let Some(Slot::Waiting { .. }) = self.at(number).slot {
            self.count("a blocking wait inside");
            self.drop_future(number);
            return Some(Returned::Ready(Err(WaitError::InsideCallback)));
        }
        self.take(number)
    }

    fn count_own_event(&mut self, own: Option<usize>, key: Key) {
        let Some(own) = own.map(|own| &self.all[own]) else { return };
        let checked = matches!(own.state, State::New | State::UnderCheck);
        self.count_if(checked && own.request.keys.contains(&key), "its own event in a check");
    }

    fn raise(&mut self, key: Key, by: u64) -> u64 {
        self.values[key as usize] += by;
        self.values[key as usize]
    }

    fn end_picked(&mut self, own: Option<usize>, pick: Pick, outcome: Outcome) -> Option<Returned> {
        let number = self.pick_id(own, pick)?;
        self.call(|model| Some(Returned::Attempt(model.end(number, outcome))))
    }
}

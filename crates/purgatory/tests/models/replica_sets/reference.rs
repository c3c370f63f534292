//! The reference: one group on plain lists.

use purgatory::{CancelReason, WaitError};

use super::{Called, Has, Plain};

#[derive(Clone, Default)]
pub(super) struct Group {
    epoch: u64,
    watermark: u64,
    rule: Plain,
    /// The leader's log end as the epoch began; `None` if another process leads.
    start: Option<u64>,
    members: Vec<Has>,
    /// Members that were seen to lag: the member, when it was first seen, and the highest value
    /// then.
    lags: Vec<(u8, u64, u64)>,
}

#[derive(Default)]
pub(super) struct Reference {
    group: Option<Group>,
    is_closed: bool,
    /// The waits: their numbers and thresholds.
    pub(super) waiting: Vec<(usize, u64)>,
    /// The end of each wait, `None` while it waits.
    pub(super) ends: Vec<Option<Result<u64, WaitError>>>,
    pub(super) now_s: u64,
}

fn behind(value: u64, needed: u64) -> Result<(), WaitError> {
    if value < needed {
        let by = needed - value;
        return Err(WaitError::Behind { by });
    }
    Ok(())
}

impl Group {
    fn members_min(&self) -> usize {
        self.rule.floor.max(self.rule.needed.unwrap_or(0))
    }

    fn has(&self, member: u8) -> bool {
        self.members.iter().any(|&(name, _)| name == member)
    }

    fn not_here(&self) -> WaitError {
        match self.start {
            Some(_) => WaitError::NoMember,
            None => WaitError::NoGroup,
        }
    }

    /// Raises the watermark to the highest value that enough members have reported. A value from
    /// before the epoch counts only if the rule asks for all members.
    fn raise(&mut self) {
        let count = self.members.len();
        let needed = match self.rule.needed {
            None => count / 2 + 1,
            Some(0) => count,
            Some(k) => k,
        };
        if count < self.members_min() {
            return;
        }
        for value in self.watermark + 1..=self.members.iter().map(|of| of.1).max().unwrap_or(0) {
            let have = self.members.iter().filter(|of| of.1 >= value).count();
            let is_new = self.epoch == 0 || self.start.is_some_and(|start| value > start);
            let counts = self.rule.needed == Some(0) || is_new;
            if have >= needed && counts {
                self.watermark = value;
            }
        }
    }

    fn forget(&mut self, member: u8) {
        self.lags.retain(|&(name, ..)| name != member);
    }

    fn highest(&self) -> u64 {
        self.members.iter().map(|of| of.1).max().unwrap_or(0)
    }

    /// Forgets lags that are over: no member lags behind a value that no member has any more.
    fn forget_who_caught_up(&mut self) {
        let highest = self.highest();
        for lag in &mut self.lags {
            lag.2 = lag.2.min(highest);
        }
        let members = self.members.clone();
        let has = |name, value| members.iter().any(|of| of.0 == name && of.1 >= value);
        self.lags.retain(|&(name, _, had)| !has(name, had));
    }

    pub(super) fn set_rule(&mut self, rule: Plain) -> Result<(), WaitError> {
        self.start.ok_or(WaitError::NoGroup)?;
        self.rule = rule;
        Ok(())
    }

    pub(super) fn report(&mut self, (member, value): Has) -> Result<(), WaitError> {
        let Some(of) = self.members.iter_mut().find(|of| of.0 == member) else {
            return Err(self.not_here());
        };
        let before = std::mem::replace(&mut of.1, value);
        self.forget_who_caught_up();
        // A minority may be slow, so its low value is no error.
        if self.rule.needed == Some(0) || before >= self.watermark {
            behind(value, self.watermark)?;
        }
        Ok(())
    }

    /// Returns an error if a member with this value has not caught up.
    fn admits(&self, value: u64) -> Result<(), WaitError> {
        let start = self.start.ok_or(WaitError::NoGroup)?;
        behind(value, self.watermark.max(start))
    }

    pub(super) fn join(&mut self, (member, value): Has) -> Result<(), WaitError> {
        if self.has(member) {
            return Err(WaitError::IsMember);
        }
        self.admits(value)?;
        self.members.push((member, value));
        Ok(())
    }

    pub(super) fn leave(&mut self, member: u8) -> Result<(), WaitError> {
        if !self.has(member) {
            return Err(self.not_here());
        }
        self.members.retain(|&(name, _)| name != member);
        self.forget(member);
        self.forget_who_caught_up();
        Ok(())
    }
}

impl Reference {
    pub(super) fn reached(&self) -> u64 {
        self.watermark().unwrap_or(0)
    }

    pub(super) fn watermark(&self) -> Option<u64> {
        Some(self.group.as_ref()?.watermark)
    }

    pub(super) fn epoch(&self) -> Option<u64> {
        Some(self.group.as_ref()?.epoch)
    }

    pub(super) fn members(&self) -> Vec<Has> {
        let group = self.group.as_ref();
        group.map(|group| group.members.clone()).unwrap_or_default()
    }

    pub(super) fn below_floor(&self) -> Option<CancelReason> {
        let group = self.group.as_ref()?;
        group.start?;
        let (members, floor) = (group.members.len(), group.members_min());
        (members < floor).then_some(CancelReason::BelowFloor { members, floor })
    }

    /// Returns the members that have less than the highest value, and remembers when they were
    /// first seen.
    pub(super) fn lagging(&mut self) -> Vec<(u8, u64, u64)> {
        let mut shown = Vec::new();
        let now_s = self.now_s;
        let Some(group) = &mut self.group else {
            return shown;
        };
        let highest = group.highest();
        for (member, value) in group.members.clone() {
            if value == highest {
                continue;
            }
            let seen = group.lags.iter().find(|lag| lag.0 == member).copied();
            if seen.is_none() {
                group.lags.push((member, now_s, highest));
            }
            let since_s = seen.map_or(now_s, |(_, since_s, _)| since_s);
            shown.push((member, value, now_s - since_s));
        }
        shown.sort_by_key(|&(_, value, _)| value);
        shown
    }

    pub(super) fn cancel_below_floor(&mut self) -> usize {
        match self.below_floor() {
            Some(reason) => self.cancel(reason),
            None => 0,
        }
    }

    pub(super) fn remove(&mut self) -> usize {
        self.group = None;
        self.is_closed = false;
        self.cancel(CancelReason::Requested("its key was removed".into()))
    }

    pub(super) fn close(&mut self) -> usize {
        self.is_closed = true;
        self.cancel(CancelReason::Closed("closed".into()))
    }

    pub(super) fn wait(&mut self, epoch: u64, threshold: u64) {
        let end = self.at_once(epoch, threshold);
        if end.is_none() {
            self.waiting.push((self.ends.len(), threshold));
        }
        self.ends.push(end);
    }

    pub(super) fn drop_future(&mut self, number: usize) {
        self.waiting.retain(|wait| wait.0 != number);
    }

    fn at_once(&self, named: u64, threshold: u64) -> Option<Result<u64, WaitError>> {
        if self.is_closed {
            let closed = CancelReason::Closed("closed".into());
            return Some(Err(WaitError::Cancelled(closed)));
        }
        match self.epoch() {
            None => return Some(Err(WaitError::NoGroup)),
            Some(present) if named != present => {
                return Some(Err(WaitError::OtherEpoch { named, present }));
            }
            Some(_) => {}
        }
        if self.group.as_ref()?.start.is_none() {
            return Some(Err(WaitError::NoGroup));
        }
        (self.reached() >= threshold).then(|| Ok(self.reached()))
    }

    /// Completes the waits that the watermark has reached; returns how many.
    fn meet(&mut self) -> usize {
        let reached = self.reached();
        let before = self.waiting.len();
        let ends = &mut self.ends;
        self.waiting.retain(|&(number, threshold)| {
            if threshold <= reached {
                ends[number] = Some(Ok(reached));
            }
            threshold > reached
        });
        before - self.waiting.len()
    }

    fn cancel(&mut self, reason: CancelReason) -> usize {
        let ended = std::mem::take(&mut self.waiting);
        for &(number, _) in &ended {
            self.ends[number] = Some(Err(WaitError::Cancelled(reason.clone())));
        }
        ended.len()
    }

    pub(super) fn change(
        &mut self,
        named: u64,
        change: impl FnOnce(&mut Group) -> Result<(), WaitError>,
    ) -> Called {
        if self.is_closed {
            return Err(WaitError::KeyClosed);
        }
        let group = self.group.as_mut().ok_or(WaitError::NoGroup)?;
        let present = group.epoch;
        if named != present {
            return Err(WaitError::OtherEpoch { named, present });
        }
        change(group)?;
        group.raise();
        Ok(self.meet())
    }

    pub(super) fn set(
        &mut self,
        epoch: u64,
        members: Vec<Has>,
        log_end: u64,
        rule: Plain,
    ) -> Called {
        for (place, of) in members.iter().enumerate() {
            if members[..place].iter().any(|other| other.0 == of.0) {
                return Err(WaitError::IsMember);
            }
        }
        self.check_new(epoch)?;
        behind(log_end, self.reached())?;
        let has = |(member, value): Has| (member, value.min(log_end));
        self.enter(Group {
            epoch,
            watermark: self.reached(),
            rule,
            start: Some(log_end),
            members: members.into_iter().map(has).collect(),
            lags: Vec::new(),
        })
    }

    /// Follows another process that leads, perhaps in the present epoch: no member is known here.
    pub(super) fn follow(&mut self, epoch: u64) -> Called {
        if self.is_closed || self.epoch() != Some(epoch) {
            self.check_new(epoch)?;
        }
        self.enter(Group {
            epoch,
            watermark: self.reached(),
            rule: Plain::default(),
            start: None,
            members: Vec::new(),
            lags: Vec::new(),
        })
    }

    /// Begins an epoch with a member as its leader; of the others it knows no more than the
    /// watermark.
    pub(super) fn begin(&mut self, epoch: u64, (leader, end): Has) -> Called {
        self.check_new(epoch)?;
        let mut next = self.group.clone().ok_or(WaitError::NoGroup)?;
        if !next.has(leader) {
            return Err(next.not_here());
        }
        for of in &mut next.members {
            of.1 = if of.0 == leader {
                end
            } else {
                of.1.min(next.watermark)
            };
        }
        behind(end, next.watermark)?;
        next.epoch = epoch;
        next.start = Some(end);
        next.lags.clear();
        self.enter(next)
    }

    fn check_new(&self, named: u64) -> Result<(), WaitError> {
        if self.is_closed {
            return Err(WaitError::KeyClosed);
        }
        match self.epoch() {
            Some(present) if named <= present => Err(WaitError::OtherEpoch { named, present }),
            _ => Ok(()),
        }
    }

    /// Enters a group's epoch, which ends the waits of the last one.
    fn enter(&mut self, mut group: Group) -> Called {
        let epoch = self.epoch().unwrap_or(0);
        let present = group.epoch;
        group.raise();
        self.group = Some(group);
        Ok(self.cancel(CancelReason::EpochOver { epoch, present }))
    }
}

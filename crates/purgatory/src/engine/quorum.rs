//! Waits for several keys' values, as they park. Judged, once they are parked, by
//! [`values`](crate::engine::values).

use std::{mem, sync::Arc};

use smallvec::SmallVec;

use crate::{
    engine::{
        Core,
        park::ParkedUnder,
        trampoline::Call,
        values::{ForValue, Judgement, Members, ValueWait},
    },
    error::Refused,
    operation::{Timeout, Verdict},
    shard::{ParkOptions, Watch, Watermark, WatermarkKind, values::Member},
    sync::Ordering,
    watches::WatchKey,
};

impl<K: WatchKey, O: ValueWait> Core<K, O> {
    /// Parks a wait for several keys, each with the rank of its threshold, unless it ends at once.
    /// No key comes twice.
    pub(crate) fn park_quorum(
        self: &Arc<Self>,
        watermarks: &[(&K, u64)],
        timeout: Timeout,
        mut operation: O,
    ) -> Result<ForValue<O>, Refused<O>> {
        // 1. It may be over.
        let now_ns = self.driver().now_ns();
        let is_met = self.is_met_now(watermarks, &mut operation);
        if let Some(outcome) = timeout.at_once(is_met, now_ns) {
            self.counts.ended_at_once.fetch_add(1, Ordering::Relaxed);
            return Ok(ForValue::AtOnce(operation, outcome));
        }

        // 2. Take a place.
        let place = match self.take_place(&operation) {
            Ok(place) => place,
            Err(full) => return Err(self.refuse(operation, full)),
        };
        let options = self.value_options(now_ns, timeout, &operation, &place);

        // 3. Watch the keys.
        let parked = self
            .watch_members(operation, watermarks, &options)
            .inspect_err(|refused| self.report_refusal(refused.reason))?;
        mem::forget(place); // the ending returns it

        // 4. Judge it: members may have been met, or removed, since step 1.
        let handle = parked.handle;
        let ended = match self.check_until_parked(parked.checked_in) {
            None if !failpoint!(QuorumTrustsItsFirstLook) => self.judge(handle),
            ended => ended,
        };
        // 5. Its future finds the answer in its entry.
        if let Some(ended) = ended {
            self.finish(&Call::enter(&self.job_executor), ended);
        }
        Ok(ForValue::Parked(self.id(handle)))
    }

    /// Decides whether a quorum is met before it parks: reads the values of its keys, one lock
    /// after the other, and again if they meet it though a take-back came meanwhile. That ends, as
    /// [`judge`](Self::judge) does.
    fn is_met_now(&self, watermarks: &[(&K, u64)], operation: &mut O) -> Verdict {
        loop {
            let take_backs = self.take_backs();
            let mut members = Members::new();
            for (key, _) in watermarks {
                members.push(Member::Met(self.value(*key).unwrap_or(0)));
            }
            if operation.judge(&members) != Judgement::Met {
                return Verdict::Unsatisfied;
            }
            if self.take_backs() == take_backs || failpoint!(ParkTrustsTornReading) {
                return Verdict::Satisfied;
            }
        }
    }

    /// Watches the keys of a quorum. Until all are watched this thread holds the operation.
    fn watch_members(
        &self,
        operation: O,
        watermarks: &[(&K, u64)],
        options: &ParkOptions,
    ) -> Result<ParkedUnder<K, O>, Refused<O>> {
        // 1. The hashes are made with nothing locked.
        let mut watches: SmallVec<[Watch<'_, K>; 4]> = SmallVec::new();
        for &(key, threshold) in watermarks {
            let watermark = Watermark {
                threshold,
                kind: WatermarkKind::Member,
            };
            watches.push(self.versions.watch(key, Some(watermark)));
        }

        // 2. The first key, with the entry, then the others.
        let (first, others) = watches.split_first().expect("a quorum has keys");
        let mut shard = self.shard_of(first.hash);
        if let Some(reason) = shard.refuses() {
            drop(shard);
            return Err(Refused::new(operation, reason));
        }
        // The key's `Eq` or `Clone` may panic here. The shard is unlocked then, before the
        // operation is dropped.
        let record = shard.record_of(first);
        let handle = self.insert_held(&mut shard, record, options, first.watermark);
        drop(shard);
        self.watch_others(operation, handle, others, false)
    }
}

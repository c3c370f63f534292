//! Steps of operations with several keys, from the reserved entry to the arrival.

use super::{
    super::{ParkTimes, Verdict, arrive::Arrival},
    futures::Payload,
    reference::{Linked, Parked},
    *,
};

impl Model {
    /// Reserves an entry for an operation, or takes the one that was reserved ahead.
    pub(super) fn reserve(
        &mut self,
        to_watch: Vec<(Number, Option<Watermark>)>,
        awaited: bool,
        times: ParkTimes,
    ) {
        let times = ParkTimes {
            needs_value: self.random.u8(..4) == 0,
            ..times
        };
        let home = to_watch[0].0.shard();
        let ahead = self.reserved[home].take();
        self.reference.count_if(ahead.is_some(), "reserved ahead");
        let id = ahead.unwrap_or_else(|| self.shards[home].reserve(None).unwrap());
        let mut parked = Parked::reserved(id, self.made, awaited, times);
        parked.arrival.as_mut().unwrap().to_watch = to_watch;
        self.reference.all.push(parked);
    }

    /// Sets one more watch of an operation that has not arrived. With the last one, of its first
    /// key, it arrives.
    pub(super) fn go_on_arriving(&mut self) {
        let Some(id) = self.any_id(|parked| parked.arrival.is_some()) else {
            return;
        };
        let arrival = self
            .reference
            .get(id)
            .and_then(|parked| parked.arrival.as_mut());
        let Some((key, watermark)) = arrival.and_then(|arrival| arrival.to_watch.pop()) else {
            return;
        };
        if self.random.u8(..16) == 0 {
            return self.withdraw(id); // the shard is full
        }
        if self
            .reference
            .get(id)
            .is_some_and(|parked| parked.is_watched())
        {
            return self.arrive(id, key, watermark);
        }
        let of = self.key(key);
        let watch = Watch {
            key: &of,
            hash: key.hash(),
            version: 0,
            watermark,
        };
        let tickets = &mut self.reference.get(id).unwrap().tickets;
        let secondary = self.shards[key.shard()]
            .watch(&watch, id, tickets.last().copied())
            .unwrap();
        tickets.push(secondary);
        assert_eq!(secondary.shard as usize, key.shard());
        self.reference
            .watch(key, watermark, Linked::last_secondary(id, secondary));
    }

    /// Puts an operation into its entry, under its first key.
    fn arrive(&mut self, id: TimerHandle, key: Number, watermark: Option<Watermark>) {
        // 1. The reference.
        let event_passed = self.random.u8(..4) == 0;
        let (times, parked) = self.reference.arrive(id, event_passed);
        let number = parked.payload;
        let operation = Payload::new(number, parked.awaited);
        let last_secondary = parked.tickets.last().copied();
        self.reference.watch(key, watermark, Linked::first(id));
        self.reference.homes[id.shard()].counts.parked += 1;
        // 2. The shard.
        let of = self.key(key);
        let watch = Watch {
            key: &of,
            hash: key.hash(),
            version: 0,
            watermark,
        };
        let shard = &mut self.shards[id.shard()];
        let record = shard.record_of(&watch);
        let arrival = Arrival {
            handle: id,
            operation,
            times: &times,
            last_secondary,
            watermark,
            event_passed,
        };
        let arrived = shard.arrive(record, arrival, None);
        let is_never = times.armed.unwrap_or(u64::MAX) == u64::MAX;
        assert_eq!(arrived.due == u64::MAX, is_never);
        // 3. One more is reserved ahead, unless there is one.
        if self.random.bool() {
            let is_there = shard.cold.reserved.is_some();
            let next = shard.reserve_next();
            assert_eq!(next.is_some(), !is_there);
            self.reserved[id.shard()] = self.reserved[id.shard()].or(next);
        }
        self.checked_in(id, Verdict::Unsatisfied, arrived.checked_in);
    }

    pub(super) fn withdraw(&mut self, id: TimerHandle) {
        let entry = self.shards[id.shard()]
            .withdraw(id)
            .expect("it is reserved");
        assert!(entry.is_blank());
        let (parked, left) = self.reference.remove(id);
        assert_eq!(left, None);
        let foreign = parked
            .tickets
            .iter()
            .any(|secondary| secondary.shard as usize != id.shard());
        self.reference
            .count_if(foreign, "withdrawn with watches in both shards");
    }
}

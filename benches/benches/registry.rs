//! The watch registry beside the same job done with dashmap: append a waiter to a key's list, take it
//! off again. 1000 keys at random, one thread, and two on the same map.
//!
//! `cargo bench -p purgatory-benches --bench registry`. docs/DESIGN.md quotes it.
#![allow(missing_docs, reason = "criterion's macros")]

use std::{hint::black_box, sync::Barrier, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use dashmap::DashMap;
use foldhash::fast::RandomState;
use purgatory::internals::Registry;
use smallvec::SmallVec;
use timer_core::{Clock, ManualTimer, SystemClock, Timer, TimerHandle};

const KEYS: u64 = 1000;

/// Appends and removes a waiter.
trait Watching: Sync {
    fn watch_unwatch(&self, key: u64, id: TimerHandle);
}

impl Watching for Registry<u64> {
    fn watch_unwatch(&self, key: u64, id: TimerHandle) {
        let watched = self.watch(&key, self.see(&key), None, id);
        let ticket = watched.ticket.expect("room");
        black_box(self.unwatch(ticket, id));
    }
}

/// As close as dashmap comes: the list lies in the map, the ticket is the key and the id.
struct WithDashMap(DashMap<u64, SmallVec<[TimerHandle; 2]>, RandomState>);

impl Watching for WithDashMap {
    fn watch_unwatch(&self, key: u64, id: TimerHandle) {
        self.0.entry(key).or_default().push(id);
        let gone = self.0.remove_if_mut(&key, |_, waiters| {
            let position = waiters.iter().position(|&other| other == id).expect("watched");
            waiters.remove(position);
            waiters.is_empty()
        });
        black_box(gone);
    }
}

fn measure(watching: &impl Watching, threads: u64, iterations: u64) -> Duration {
    let clock = SystemClock::new();
    let start = Barrier::new(threads as usize);
    let timer = ManualTimer::new();
    let id = timer.schedule(Duration::from_secs(60), || ()).expect("room");
    let other = timer.schedule(Duration::from_secs(60), || ()).expect("room");
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                let start = &start;
                scope.spawn(move || {
                    let id = if thread == 0 { id } else { other };
                    let mut random = fastrand::Rng::with_seed(thread);
                    start.wait();
                    let begin = clock.now_ns();
                    for _ in 0..iterations {
                        watching.watch_unwatch(random.u64(0..KEYS), id);
                    }
                    clock.now_ns() - begin
                })
            })
            .collect();
        let elapsed = running.into_iter().map(|thread| thread.join().expect("a bench thread"));
        Duration::from_nanos(elapsed.max().unwrap_or(0))
    })
}

fn registry(c: &mut Criterion) {
    let ours = Registry::new();
    let dash = |shards| {
        let map =
            DashMap::with_capacity_and_hasher_and_shard_amount(0, RandomState::default(), shards);
        WithDashMap(map)
    };
    let default = WithDashMap(DashMap::default());
    let wide = dash(4096);
    let mut group = c.benchmark_group("watch+unwatch");
    for threads in [1, 2] {
        let mut run = |name: &str, watching: &dyn Fn(u64) -> Duration| {
            group.bench_function(format!("{name}, {threads} threads"), |b| {
                b.iter_custom(watching);
            });
        };
        run("ours", &|iterations| measure(&ours, threads, iterations));
        run("dashmap of 4096 shards", &|iterations| measure(&wide, threads, iterations));
        run("dashmap by default", &|iterations| measure(&default, threads, iterations));
    }
    group.finish();
}

criterion_group!(benches, registry);
criterion_main!(benches);

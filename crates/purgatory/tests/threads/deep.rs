//! Chains of a ten thousand callbacks, and of wakers that drop futures, each inside the one
//! before, on a thread with 13 bytes of stack for each.

use crate::support::*;

const DEEP: usize = 10_000;

/// Runs a chain on a thread with a small stack; returns how many links it had.
fn on_small_stack(chain: impl FnOnce(Arc<AtomicUsize>) + Send + 'static) -> usize {
    let links = Arc::new(AtomicUsize::new(0));
    let counted = links.clone();
    on_stack(128 << 10, move || chain(counted));
    links.load(SeqCst)
}

/// Each callback of a value advances the next key.
#[test]
fn callbacks_of_values_that_advance() {
    let links = on_small_stack(|links| {
        let values = Watermarks::<usize>::on(&ManualTimer::new(), "deep").unwrap();
        for key in 0..DEEP {
            let inside = values.clone();
            let counted = links.clone();
            let advances = move |_| {
                counted.fetch_add(1, SeqCst);
                inside.advance(&(key + 1), 1).unwrap();
            };
            values.park(&key, 1, MINUTE, advances).unwrap();
        }
        values.advance(&0, 1).unwrap();
    });
    assert_eq!(links, DEEP);
}

/// Each future has the waker that has the next one: when the first is dropped, all are.
fn drops_of_wakers<T: Send + 'static>(links: &Arc<AtomicUsize>, wait: impl Fn() -> WaitFuture<T>) {
    let mut last = None::<WaitFuture<T>>;
    for _ in 0..DEEP {
        let mut next = wait();
        let counted = links.clone();
        let holds = OnDrop::new(move || {
            let _ = &last; // which follows
            counted.fetch_add(1, SeqCst);
        });
        assert!(poll_by(&mut next, &holds.waker()).is_pending());
        last = Some(next);
    }
    drop(last);
}

#[test]
fn wakers_that_drop_futures_of_values() {
    let links = on_small_stack(|links| {
        let values = Watermarks::<usize>::on(&ManualTimer::new(), "deep").unwrap();
        drops_of_wakers(&links, || values.wait_for(&1, 1, NEVER));
        assert!(values.waits().is_empty());
    });
    assert_eq!(links, DEEP);
}

#[test]
fn wakers_that_drop_futures_of_permits() {
    let links = on_small_stack(|links| {
        let permits = Permits::on(&ManualTimer::new(), "deep", 0).unwrap();
        drops_of_wakers(&links, || permits.acquire(1, NEVER));
        assert!(permits.waits().is_empty());
    });
    assert_eq!(links, DEEP);
}

#[test]
fn wakers_that_drop_futures_of_operations() {
    let links = on_small_stack(|links| {
        let purgatory = Purgatory::<usize>::on(&ManualTimer::new(), "deep").unwrap();
        drops_of_wakers(&links, || purgatory.next_event(&[1], NEVER));
        assert!(purgatory.is_empty());
    });
    assert_eq!(links, DEEP);
}

//! Planted races, and the same programs without the race, by way of the functions that `std.c` and
//! `std.supp` handle: `races NAME`.

use std::{
    cell::UnsafeCell,
    env, hint,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering, Ordering::*},
        mpsc,
    },
    thread,
};

/// Is written without a lock, and once more when its last owner drops it.
#[derive(Default)]
struct Shared(UnsafeCell<u64>);

// SAFETY: none, which is the point.
unsafe impl Sync for Shared {}

impl Shared {
    fn write(&self) {
        unsafe { *self.0.get() += 1 }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.write();
    }
}

/// Another thread writes and sets a flag; this thread also writes, once it sees the flag.
fn publish(say: Ordering, hear: Ordering) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let shared = Arc::new(Shared::default());
    let other = shared.clone();
    let thread = thread::spawn(move || {
        other.write();
        SAID.store(true, say);
        other
    });
    while !SAID.load(hear) {
        hint::spin_loop();
    }
    shared.write();
    drop(thread.join());
}

/// A thread that owns nothing writes and sets a flag; this thread drops the last `Arc` once it sees
/// the flag.
fn free(say: Ordering, hear: Ordering) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let shared = Arc::new(Shared::default());
    let borrowed = Arc::as_ptr(&shared) as usize;
    let thread = thread::spawn(move || {
        unsafe { &*(borrowed as *const Shared) }.write();
        SAID.store(true, say);
    });
    while !SAID.load(hear) {
        hint::spin_loop();
    }
    drop(shared);
    drop(thread.join());
}

/// Another thread sends the value that it has written, and may write once more; this thread writes
/// once it has received the value.
fn send(once_more: bool) {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || {
        let shared = Arc::new(Shared::default());
        shared.write();
        let kept = once_more.then(|| shared.clone());
        drop(sender.send(shared));
        kept.inspect(|kept| kept.write()).map(|kept| (kept, sender))
    });
    receiver.recv().inspect(|shared| shared.write()).ok();
    drop(thread.join());
}

/// Four threads write under a lock that they contend for; with `forget`, one does not take it.
fn lock(forget: bool) {
    let (shared, lock) = (Arc::new(Shared::default()), Arc::new(Mutex::new(())));
    let threads = [false, false, false, forget].map(|forget| {
        let (shared, lock) = (shared.clone(), lock.clone());
        thread::spawn(move || {
            for _ in 0..10_000 {
                let _locked = (!forget).then(|| lock.lock());
                shared.write();
            }
        })
    });
    for thread in threads {
        drop(thread.join());
    }
}

/// Two owners: only the count of the `Arc` orders the write by one before the drop by the other.
fn own() {
    let shared = Arc::new(Shared::default());
    let other = shared.clone();
    let thread = thread::spawn(move || other.write());
    drop(shared);
    drop(thread.join());
}

fn main() {
    match env::args().nth(1).as_deref() {
        Some("published") => publish(Relaxed, Relaxed),
        Some("freed") => free(Relaxed, Relaxed),
        Some("sent") => send(true),
        Some("locked") => lock(true),
        _ => {
            publish(Release, Acquire);
            free(Release, Acquire);
            send(false);
            lock(false);
            (0..100).for_each(|_| own());
        }
    }
}

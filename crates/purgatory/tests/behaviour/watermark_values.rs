//! Watermarks with other values than `u64`.

use std::{any::type_name_of_val, fmt::Debug};

use purgatory::WatermarkValue;

use crate::support::*;

/// Creates watermarks of these values on a manual timer, with their waits for inspection.
fn watermarks<V: WatermarkValue>() -> (ManualTimer, Waits<u32>, Watermarks<u32, V>) {
    let (timer, waits, watermarks) = crate::support::watermarks();
    (timer, waits, watermarks.with_values())
}

/// A program that names no type of value gets `u64`: for literals, for values that it parses or
/// converts, and for results.
#[test]
fn plain_programs_have_u64_without_naming_it() {
    let marks = Watermarks::new("plain").unwrap();
    let end = 7;
    let parsed = "8".parse().unwrap();
    let mut first = marks.wait_for(&(), end, SECOND);
    let mut each = marks.wait_for_each(&[((), 8)], SECOND);
    assert_eq!(marks.advance(&(), parsed), Ok(2));
    assert_eq!(marks.in_epoch(&(), 0).advance(9_u32.into()), Ok(0));
    assert_eq!(type_name_of_val(&end), "u64");
    assert_eq!(type_name_of_val(&parsed), "u64");
    assert_eq!(type_name_of_val(&over(&mut first).unwrap()), "u64");
    assert_eq!(over(&mut each), Ok(vec![((), 8)]));

    let marks = Watermarks::builder("plain").keys_max(5).build().unwrap();
    assert_eq!(marks.begin_epoch(&(), 1, 5), Ok(0));
    assert_eq!(type_name_of_val(&marks.value(&()).unwrap()), "u64");
    let marks = Watermarks::builder("plain").build().unwrap();
    assert_eq!(marks.add(&(), 5), Ok(0));
    let expected = "core::option::Option<u64>";
    assert_eq!(type_name_of_val(&marks.lowest_waiting(&())), expected);

    /// A field and a parameter need not name it either.
    struct Server {
        marks: Watermarks<String>,
    }
    fn advance(marks: &Watermarks<String>, to: u64) -> Option<u64> {
        marks.advance("a", to).unwrap();
        marks.value("a")
    }
    let marks = Watermarks::new("field").unwrap();
    assert_eq!(advance(&Server { marks }.marks, 3), Some(3));
}

#[track_caller]
fn in_order<V: WatermarkValue + PartialEq + Debug>(ascending: &[V]) {
    assert_eq!(ascending[0].to_rank(), 0);
    for pair in ascending.windows(2) {
        assert!(pair[0].to_rank() < pair[1].to_rank(), "{pair:?}");
    }
    for &value in ascending {
        assert_eq!(V::from_rank(value.to_rank()), value);
    }
}

#[test]
fn ranks_of_integers_keep_their_order() {
    in_order(&[
        i64::MIN,
        i64::MIN + 1,
        -5_000_000_000,
        -1,
        0,
        1,
        5_000_000_000,
        i64::MAX,
    ]);
    in_order(&[i32::MIN, i32::MIN + 1, -1, 0, 1, i32::MAX - 1, i32::MAX]);
    in_order(&[0, 1, 2, u64::MAX - 1, u64::MAX]);
    in_order(&[0, 1, u32::MAX]);
    in_order(&[0, 1, usize::MAX]);
}

/// A value whose mapping asks how many wait, which takes the locks of all shards.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Asking(u64);

static ASKED: OnceLock<Waits<u32>> = OnceLock::new();

impl Asking {
    fn ask(value: u64) -> u64 {
        if let Some(waits) = ASKED.get() {
            let _ = waits.len();
        }
        value
    }
}

impl WatermarkValue for Asking {
    fn to_rank(self) -> u64 {
        Asking::ask(self.0)
    }

    fn from_rank(rank: u64) -> Self {
        Asking(Asking::ask(rank))
    }
}

/// If a lock were held, the thread would stop for good; the test does not wait for that.
#[test]
fn mapping_runs_with_nothing_locked() {
    let (timer, waits, asking) = watermarks::<Asking>();
    assert!(ASKED.set(waits.clone()).is_ok());
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let mut one = asking.wait_for(&1, Asking(5), SECOND);
        let both = [(1, Asking(5)), (2, Asking(6))];
        let mut each = asking.wait_for_each(&both, SECOND);
        asking.park(&2, Asking(6), SECOND, drop).unwrap();
        assert_eq!(asking.lowest_waiting(&1), Some(Asking(5)));
        assert_eq!(asking.advance(&1, Asking(5)), Ok(2));
        assert_eq!(asking.begin_epoch_and_keep(&1, 1, Asking(4)), Ok(0));
        assert_eq!(asking.in_epoch(&1, 1).advance(Asking(7)), Ok(0));
        assert_eq!(asking.advance(&2, Asking(6)), Ok(2));
        assert_eq!(over(&mut one), Ok(Asking(5)));
        assert_eq!(over(&mut each), Ok(vec![(1, Asking(5)), (2, Asking(6))]));
        assert_eq!(asking.begin_epoch(&1, 2, Asking(3)), Ok(0));
        assert_eq!(asking.value(&1), Some(Asking(3)));
        done.send(()).unwrap();
    });
    assert_eq!(is_done.recv_timeout(60 * SECOND), Ok(()));
    drop(timer);
    assert_nothing_waits(&waits);
}

/// The mapping is checked before anything is changed.
#[cfg(debug_assertions)]
#[test]
#[should_panic = "does not come back from its rank"]
fn mapping_that_loses_values_panics_in_debug() {
    #[derive(Clone, Copy)]
    struct Halved(u64);

    impl WatermarkValue for Halved {
        fn to_rank(self) -> u64 {
            self.0 / 2
        }

        fn from_rank(rank: u64) -> Self {
            Halved(rank)
        }
    }

    let (_timer, _waits, lossy) = watermarks::<Halved>();
    let _ = lossy.advance(&1, Halved(8));
}

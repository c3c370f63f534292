//! What errors, outcomes and reasons say: the value that was wrong, and the bound.

use purgatory::{
    BoxedOperation, CancelReason, EndResult, Outcome, ParkResult, Purgatory, RefusedReason,
    Timeout, WaitError, Watches, when,
};

#[test]
fn a_refusal_names_the_bound() {
    let waits: Purgatory<u32, BoxedOperation> =
        Purgatory::builder("waits").max_parked(1).build().unwrap();
    let park = |watches: Watches<'_, u32>| {
        let operation = when(|| false, drop);
        waits.try_complete_else_watch(operation, watches, Timeout::Never)
    };
    let says = |watches| park(watches).unwrap_err().to_string();
    assert_eq!(says(Watches::keys(&[])), "not parked: no watch key");
    let levels: Vec<_> = (0..20_000).map(|key| (key, 1)).collect();
    let many = says(Watches::up_to(&levels));
    assert_eq!(many, "not parked: more than 16383 watermarks to count in one operation");
    park(Watches::keys(&[1])).unwrap();
    let full = says(Watches::keys(&[1]));
    assert_eq!(full, "not parked: no more than 1 can be parked");
    waits.shutdown(std::time::Duration::from_secs(60));
    let closed = says(Watches::keys(&[1]));
    assert_eq!(closed, "not parked: the purgatory was shut down");
    let rooms = Purgatory::<u32>::builder("rooms").rooms(3).build().unwrap_err();
    assert_eq!(rooms.to_string(), "3 shards or rooms: not a power of two in 1..=256");
}

#[test]
fn an_outcome_says_why() {
    let cancelled = |reason| Outcome::Cancelled(reason).to_string();
    assert_eq!(Outcome::Completed.to_string(), "completed");
    assert_eq!(cancelled(CancelReason::Dropped), "cancelled: its purgatory was dropped");
    assert_eq!(cancelled(CancelReason::Panicked), "cancelled: its check panicked");
    let inside = WaitError::InsideCallback.to_string();
    assert_eq!(inside, "a blocking wait inside a check, a callback or a task that it may wait for");
    let refused = WaitError::Refused(RefusedReason::NoKeys).to_string();
    assert_eq!(refused, "not parked: no watch key");
}

/// Hexadecimal: the purgatory's number, a dash, the operation's.
#[test]
fn the_id_of_an_operation_is_of_one_purgatory_alone() {
    let [one, other] = ["one", "other"].map(|name| Purgatory::new(name).unwrap());
    let park = |purgatory: &Purgatory<u32, BoxedOperation>| {
        let operation = when(|| false, drop);
        match purgatory.try_complete_else_watch(operation, &[1], Timeout::Never).unwrap() {
            ParkResult::Parked(id) => id,
            ended => panic!("{ended:?}"),
        }
    };
    let ids = [park(&one), park(&one), park(&other)];
    let parts = ids.map(|id| {
        let text = id.to_string();
        let (purgatory, operation) = text.split_once('-').unwrap();
        [purgatory, operation].map(|digits| u128::from_str_radix(digits, 16).unwrap())
    });
    assert_eq!(parts[0][0], parts[1][0]);
    assert!(parts[0][0] != parts[2][0] && parts[0][1] != parts[1][1]);
    #[cfg(feature = "serde")]
    assert_eq!(serde_json::to_value(ids[0]).unwrap(), ids[0].to_string());
    assert_eq!(other.cancel(ids[0], "not here"), EndResult::Gone);
    assert_eq!((one.len(), other.len()), (2, 1));
}

#[cfg(feature = "keyed")]
#[test]
fn a_quorum_that_cannot_be_says_why() {
    let watermarks = purgatory::Watermarks::new("replicas").unwrap();
    let says = |k, quorum: &[(u32, u64)]| {
        let refused = watermarks.wait_for_k(k, quorum, Timeout::Never).wait_blocking();
        refused.unwrap_err().to_string()
    };
    let no_quorum = says(3, &[(1, 5), (2, 5)]);
    assert_eq!(no_quorum, "not parked: 3 of 2 keys is no quorum: between 1 and 2 are");
    let twice = says(1, &[(1, 5), (1, 6)]);
    assert_eq!(twice, "not parked: a key comes twice in the quorum");
}

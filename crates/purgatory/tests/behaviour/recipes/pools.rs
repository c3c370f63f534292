//! A pool of connections.

use super::{
    guide::connection_pool::{Pool, Pooled},
    *,
};

/// While more connections are open than allowed, idle ones and those that return are closed.
#[test]
fn a_pool_that_becomes_smaller_closes_connections() {
    let pool = Pool::new(Permits::on(&ManualTimer::new(), "connections", 4).unwrap());
    let get = || got(&mut Box::pin(pool.get(SECOND)));
    let numbers = |pooled: &[Pooled]| {
        let numbers = pooled
            .iter()
            .map(|one| one.connection.as_ref().unwrap().number);
        numbers.collect::<Vec<_>>()
    };
    let mut pooled = Vec::from([(); 4].map(|()| get()));
    assert_eq!(numbers(&pooled), [1, 2, 3, 4]);
    pooled.truncate(2); // connections 3 and 4 are idle
    pool.resize(1);
    pooled.remove(0); // connection 2 is in use, the only one allowed
    pool.resize(3);
    pooled.extend([get(), get()]);
    assert_eq!(numbers(&pooled), [2, 5, 6]);
    drop(pooled);
    assert_nothing_waits(&pool.permits.waits());
}

/// The first resize grants a client its permit, and that client's waker resizes the pool, too.
#[test]
fn a_pool_resized_by_two_keeps_to_its_limit() {
    let pool = Pool::new(Permits::on(&ManualTimer::new(), "connections", 1).unwrap());
    let get = || got(&mut Box::pin(pool.get(SECOND)));
    let first = get();
    let mut second = Box::pin(pool.get(SECOND));
    let shrinks = pool.clone();
    let waker = waker(move || shrinks.resize(1));
    assert!(poll_by(&mut second, &waker).is_pending());
    pool.resize(3);
    drop((first, got(&mut second))); // one of the two is idle now
    pool.resize(2);
    let numbers = [get(), get()].map(|pooled| pooled.connection.as_ref().unwrap().number);
    assert_eq!(numbers, [2, 3]);
}

/// The client's permit was granted before the close, of which it learns later.
#[test]
fn no_client_gets_a_connection_of_a_closed_pool() {
    let pool = Pool::new(Permits::on(&ManualTimer::new(), "connections", 1).unwrap());
    let first = got(&mut Box::pin(pool.get(SECOND)));
    let mut second = Box::pin(pool.get(SECOND));
    drop(first); // the second client has the permit now
    pool.close();
    let error = over(&mut second).err().expect("no connection");
    assert!(error.is_shutdown(), "{error}");
    assert_nothing_waits(&pool.permits.waits());
}

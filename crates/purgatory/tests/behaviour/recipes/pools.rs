//! A pool of connections.

use super::{guide::connection_pool::Pool, *};

/// Its permit was granted before the close, and it learns of that after.
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

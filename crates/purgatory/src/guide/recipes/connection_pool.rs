// A pool of connections with a bound on open ones: clients wait for a connection in turn.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use purgatory::{CancelReason, Permit, Permits, WaitError};

/// In a program: a socket.
#[derive(Debug)]
pub struct Connection {
    pub number: u64,
    pub is_broken: bool,
}

#[derive(Clone)]
pub struct Pool {
    /// A permit for each connection that may be in use.
    pub permits: Permits,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    connections: Vec<Connection>,
    opened: u64,
    in_use: u64,
    /// The bound on idle and used connections together.
    open_max: u64,
    /// True once the pool is closed: connections in use are closed as they return.
    is_closed: bool,
}

/// A connection in use. On drop it returns to the pool, unless it is broken or the pool is closed
/// or has become smaller.
pub struct Pooled {
    pub connection: Option<Connection>,
    idle: Arc<Mutex<Idle>>,
    /// Dropped after the connection was returned, so that the next client finds it.
    _permit: Permit,
}

impl Pool {
    pub fn new(permits: Permits) -> Self {
        let idle = Idle {
            open_max: permits.limit(),
            ..Idle::default()
        };
        Pool {
            permits,
            idle: Arc::new(Mutex::new(idle)),
        }
    }

    /// Yields an idle connection, or a new one. This call, not the first poll, takes the place in
    /// line.
    pub fn get(
        &self,
        max_wait: Duration,
    ) -> impl Future<Output = Result<Pooled, WaitError>> + use<> {
        let permit = self.permits.acquire(1, max_wait);
        let idle = self.idle.clone();
        async move {
            let _permit = permit.await?;
            let connection = idle.lock().unwrap().take()?;
            let mut pooled = Pooled {
                connection,
                idle,
                _permit,
            };
            // No connection was idle. In a program: connect here. If that fails, or the client goes
            // meanwhile, the drop of `pooled` makes room for the next.
            if pooled.connection.is_none() {
                let connection = pooled.idle.lock().unwrap().open();
                pooled.connection = Some(connection);
            }
            Ok(pooled)
        }
    }

    /// Opens at most this many connections from now on. Idle ones beyond that are closed at once,
    /// others when they return.
    pub fn resize(&self, max: u64) {
        self.permits.resize(max);
        let mut idle = self.idle.lock().unwrap();
        idle.open_max = self.permits.limit(); // another call may have changed it again
        idle.trim();
    }

    /// Closes the pool: no client gets a connection any more, and waiting clients get an error.
    /// Idle connections are closed at once, others when they return.
    pub fn close(&self) {
        self.permits.close();
        let mut idle = self.idle.lock().unwrap();
        idle.is_closed = true;
        idle.connections.clear();
    }
}

impl Idle {
    /// A place, with a connection if one is idle.
    fn take(&mut self) -> Result<Option<Connection>, WaitError> {
        // The client had its permit before the close.
        if self.is_closed {
            let reason = CancelReason::Closed("the pool was closed".into());
            return Err(WaitError::Cancelled(reason));
        }
        self.in_use += 1;
        Ok(self.connections.pop())
    }

    fn open(&mut self) -> Connection {
        self.opened += 1;
        Connection {
            number: self.opened,
            is_broken: false,
        }
    }

    /// Closes idle connections beyond the bound.
    fn trim(&mut self) {
        let idle_max = self.open_max.saturating_sub(self.in_use);
        self.connections.truncate(idle_max as usize);
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        let mut idle = self.idle.lock().unwrap();
        idle.in_use -= 1;
        if let Some(connection) = self.connection.take() {
            if !connection.is_broken && !idle.is_closed {
                idle.connections.push(connection);
                idle.trim();
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(Permits::new("connections", 1)?);
    let first = pool.get(Duration::from_secs(5)).await?;
    let second = pool.get(Duration::from_secs(5));
    drop(first); // the second client has it now
    let mut second = second.await?;
    let connection = second.connection.as_mut().unwrap();
    assert_eq!(connection.number, 1);

    connection.is_broken = true;
    drop(second);
    let third = pool.get(Duration::from_secs(5)).await?;
    assert_eq!(third.connection.as_ref().unwrap().number, 2);

    pool.close();
    assert!(pool.get(Duration::from_secs(5)).await.is_err());
    drop(third); // it was in use, and is closed now
    assert!(pool.idle.lock().unwrap().connections.is_empty());
    Ok(())
}

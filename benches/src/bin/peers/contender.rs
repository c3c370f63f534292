//! A contender of a row: its name, and how the row measures it.

use crate::results::OURS;

/// A contender of one row.
#[derive(Clone, Copy)]
pub(crate) struct Contender<A, R> {
    /// The name in the output.
    pub(crate) name: &'static str,
    /// Measures the contender once.
    pub(crate) measure: fn(A) -> anyhow::Result<R>,
}

impl<A, R> Contender<A, R> {
    pub(crate) fn new(name: &'static str, measure: fn(A) -> anyhow::Result<R>) -> Self {
        Contender { name, measure }
    }
}

/// A contender in which requests wait.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    /// The name in the output.
    const NAME: &'static str = OURS;

    /// Starts the contender inside a tokio runtime with its time driver.
    fn start() -> anyhow::Result<Self>;

    /// Returns how many requests it still holds, as far as it can tell.
    fn remaining(&self) -> usize;
}

/// A contender whose requests are awaited; in `P` itself, they are called back.
pub(crate) struct Awaited<P>(pub(crate) P);

impl<P: Peer> Peer for Awaited<P> {
    const NAME: &'static str = P::NAME;

    fn start() -> anyhow::Result<Self> {
        Ok(Awaited(P::start()?))
    }

    fn remaining(&self) -> usize {
        self.0.remaining()
    }
}

/// Lists the contenders of a row: applies the row's generic function to each of the types.
macro_rules! contenders {
    ($measure:ident, $kind:path: $($peer:ty),+ $(,)?) => {
        vec![$($crate::contender::Contender::new(<$peer as $kind>::NAME, $measure::<$peer>)),+]
    };
}
pub(crate) use contenders;

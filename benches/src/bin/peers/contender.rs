//! A contender of a row: its name, and how the row measures it.

/// A contender of one row.
#[derive(Clone, Copy)]
pub(crate) struct Contender<A, R> {
    /// The name in the output.
    pub(crate) name: &'static str,
    /// Measures it once.
    pub(crate) measure: fn(A) -> anyhow::Result<R>,
}

/// A contender that lets something wait.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    /// The name in the output.
    const NAME: &'static str;

    /// Starts inside a runtime with tokio's time, which may be given tasks.
    fn start() -> anyhow::Result<Self>;

    /// The number of requests that it still holds, where it can tell.
    fn left(&self) -> usize;
}

/// The contenders of a row: a generic function of the row, once for each of these types.
macro_rules! contenders {
    ($measure:ident, $kind:path: $($peer:ty),+ $(,)?) => {
        vec![$(
            $crate::contender::Contender {
                name: <$peer as $kind>::NAME,
                measure: $measure::<$peer>,
            }
        ),+]
    };
}
pub(crate) use contenders;

//! Whoever takes part in a row: its name, and how the row measures it.

/// A contender of one row.
#[derive(Clone, Copy)]
pub(crate) struct Contender<A, R> {
    /// How it is called in the output.
    pub(crate) name: &'static str,
    /// Measures it once.
    pub(crate) measure: fn(A) -> anyhow::Result<R>,
}

/// Whoever lets something wait.
pub(crate) trait Peer: Sized + Send + Sync + 'static {
    /// How it is called in the output.
    const NAME: &'static str;

    /// Inside a runtime with tokio's time, which may be given tasks.
    fn start() -> anyhow::Result<Self>;

    /// How much is still held of what waits or is waited for, where the peer can tell.
    fn left(&self) -> usize {
        0
    }
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

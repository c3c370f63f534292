//! A key named together with an epoch: [`InEpoch`]. Each form whose keys have epochs adds its own
//! calls.

use std::fmt;

/// A key of [`Watermarks`](crate::Watermarks) or a group of [`ReplicaSets`](crate::ReplicaSets),
/// named together with an epoch. Each call happens in that epoch, or is refused as
/// [`OtherEpoch`](crate::WaitError::OtherEpoch) and changes nothing: facts of one epoch do not hold
/// in the next.
///
/// Made by [`Watermarks::in_epoch`](crate::Watermarks::in_epoch) and
/// [`ReplicaSets::in_epoch`](crate::ReplicaSets::in_epoch). It only borrows: it costs nothing to
/// make and to copy, and looks nothing up before a call. To keep the name, keep the form, the key
/// and the number.
#[must_use = "it only names a key and an epoch"]
pub struct InEpoch<'a, F, Q: ?Sized> {
    pub(crate) form: &'a F,
    pub(crate) key: &'a Q,
    pub(crate) epoch: u64,
}

impl<F, Q: ?Sized> Clone for InEpoch<'_, F, Q> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F, Q: ?Sized> Copy for InEpoch<'_, F, Q> {}

impl<F: fmt::Debug, Q: ?Sized> fmt::Debug for InEpoch<'_, F, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InEpoch")
            .field("form", self.form)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

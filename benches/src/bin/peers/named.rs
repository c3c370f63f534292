//! Whoever takes part has a name, whatever is compared: [`Named`].

/// Whoever takes part.
pub(crate) trait Named: Copy {
    /// How it is called in the output.
    fn name(self) -> &'static str;
}

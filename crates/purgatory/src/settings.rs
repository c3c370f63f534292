//! The settings that every form is built from.

use std::sync::Arc;

use timer_core::{BuildError, Executor, MAX_SHARDS, driver::Driver};

use crate::sync::Limit;

/// The settings that all forms have.
pub struct Settings {
    pub(crate) name: Box<str>,
    /// `None`: the timer that the process shares.
    pub(crate) driver: Option<Arc<Driver>>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    /// `None`: as many as the form takes by default.
    pub(crate) shards: Option<usize>,
    /// The bound on parked operations.
    pub(crate) max_parked: Option<Limit>,
}

impl Settings {
    /// Makes the default settings.
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Settings {
            name: name.into().into_boxed_str(),
            driver: None,
            executor: None,
            shards: None,
            max_parked: None,
        }
    }

    /// Returns the number of shards, a power of two.
    pub(crate) fn shard_count(&self, default: impl FnOnce() -> usize) -> Result<usize, BuildError> {
        let shards = self.shards.unwrap_or_else(default);
        if shards.is_power_of_two() && shards <= MAX_SHARDS {
            Ok(shards)
        } else {
            Err(BuildError::Shards(shards))
        }
    }
}

/// A form, as its [`Builder`](crate::Builder) builds it. Only this crate implements forms.
pub trait Form: Sized {
    /// The settings that this form alone has.
    type Own;

    /// Builds the form.
    #[doc(hidden)]
    fn build(settings: Settings, own: Self::Own) -> Result<Self, BuildError>;
}

//! The settings that every form is built from.

use std::sync::Arc;

use timer_core::{BuildError, Executor, MAX_SHARDS, Timer, driver::Driver};

use crate::sync::Limit;

/// The settings that all forms have.
pub struct Settings {
    pub(crate) name: Box<str>,
    /// `None`: the timer that the process shares.
    pub(crate) driver: Option<Arc<Driver>>,
    pub(crate) executor: Option<Arc<dyn Executor>>,
    /// `None`: as many as the form takes by default.
    pub(crate) shards: Option<usize>,
    /// The bound on what waits.
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

    /// Returns true on a manual timer: what happens there is to repeat.
    pub(crate) fn is_simulated(&self) -> bool {
        let driver = self.driver.as_ref();
        driver.is_some_and(|driver| driver.config.manual)
    }

    /// Returns the driver of the timer that was set, or of the one that the process shares.
    pub(crate) fn driver(&self) -> Result<Arc<Driver>, BuildError> {
        match &self.driver {
            Some(driver) => Ok(driver.clone()),
            None => Timer::shared_driver(),
        }
    }
}

/// A form, as its [`Builder`](crate::Builder) builds it. Only this crate has forms.
pub trait Form: Sized {
    /// The settings that this form alone has.
    type Own;

    /// Builds it.
    #[doc(hidden)]
    fn build(settings: Settings, own: Self::Own) -> Result<Self, BuildError>;
}

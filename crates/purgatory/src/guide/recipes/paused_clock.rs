//! An hour's timeout in a test that takes no time: the runtime's clock is paused.

use std::time::Duration;
use purgatory::{Purgatory, WaitError, timer_core::SystemTimer};
use tokio::{runtime::Handle, time::Instant};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = SystemTimer::builder().tokio(Handle::current()).build()?;
    let polls: Purgatory<u64> =
        Purgatory::builder("polls").timer(&timer).build()?;
    let began = Instant::now();
    let never = polls.wait(&[7], Duration::from_secs(3600), || None::<()>);
    assert_eq!(never.await, Err(WaitError::Expired)); // at once
    assert_eq!(began.elapsed().as_secs(), 3600);
    Ok(())
}

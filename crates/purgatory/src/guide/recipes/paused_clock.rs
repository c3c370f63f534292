// An hour's timeout in a test that takes no time: the runtime's clock is paused.

use std::time::Duration;
use purgatory::{Purgatory, WaitError, timer_core::Timer};
use tokio::time::Instant;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let polls: Purgatory<u64> = Purgatory::on(&Timer::tokio()?, "polls")?; // as in the program
    let began = Instant::now();
    let never = polls.wait(&[7], Duration::from_secs(3600), || None::<()>);
    assert_eq!(never.await, Err(WaitError::Expired)); // at once
    assert_eq!(began.elapsed().as_secs(), 3600);
    Ok(())
}

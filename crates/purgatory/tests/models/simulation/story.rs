//! What happens in a story: made from a seed, and nothing else.

use fastrand::Rng;

pub(crate) const FOLLOWERS: usize = 2;
pub(crate) const PARTITIONS: usize = 3;

/// A step, at its millisecond.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug)]
pub(crate) enum What {
    /// A client appends to these partitions, and waits for all of them.
    Produce { client: u64, partitions: Vec<usize>, timeout: u64, form: Form },
    /// A client is gone, and what it waits for with it.
    Leave { client: u64 },
    /// A follower does nothing for so long; what comes meanwhile waits.
    Pause { follower: usize, for_ms: u64 },
    /// A follower loses its log and begins anew.
    Crash { follower: usize },
    /// The leader restarts: what waited there is told so. It has its log and its high watermarks,
    /// and what its followers have it hears from them again.
    Restart,
    /// The leader's clock jumps, and nothing is turned meanwhile.
    Jump { by: u64 },
    /// The executor runs nothing for so long.
    Stall { for_ms: u64 },
    /// Messages are lost, one in so many, for so long.
    Loss { one_in: u64, for_ms: u64 },
}

/// How a produce waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    /// Counted watermarks: the check is never asked again.
    Counted,
    /// Watermarks as a lower bound.
    Checked,
    /// Plain keys.
    Plain,
}

/// A story of a second, and what is left of it.
pub(crate) fn story(seed: u64) -> Vec<Step> {
    let mut rng = Rng::with_seed(seed);
    let count = rng.usize(5..60);
    let mut steps: Vec<_> =
        (0..count).map(|_| Step { at: rng.u64(..1000), what: what(&mut rng) }).collect();
    steps.sort_by_key(|step| step.at);
    steps
}

fn what(rng: &mut Rng) -> What {
    let follower = rng.usize(..FOLLOWERS);
    match rng.u32(..20) {
        0 => What::Pause { follower, for_ms: rng.u64(1..400) },
        1 => What::Crash { follower },
        2 => What::Jump { by: rng.u64(1..200) },
        3 => What::Stall { for_ms: rng.u64(1..200) },
        4 => What::Loss { one_in: rng.u64(2..5), for_ms: rng.u64(1..300) },
        5 => What::Leave { client: rng.u64(..8) },
        6 => What::Restart,
        _ => {
            let mut partitions: Vec<_> = (0..PARTITIONS).filter(|_| rng.bool()).collect();
            if partitions.is_empty() {
                partitions.push(rng.usize(..PARTITIONS));
            }
            let form = [Form::Counted, Form::Checked, Form::Plain][rng.usize(..3)];
            let timeout = if rng.u32(..20) == 0 { 0 } else { rng.u64(1..150) };
            What::Produce { client: rng.u64(..8), partitions, timeout, form }
        }
    }
}

//! No purgatory at all: what the generator and the completing thread cost by themselves.

use super::wait::Waits;
use crate::books::{Ending, Request};

pub(crate) struct Nothing;

impl Waits for Nothing {
    const EXPIRES: bool = false;

    type Ticket = Request;

    fn park(&self, request: Request) -> Request {
        request
    }

    fn complete(&self, requests: impl Iterator<Item = Request>) {
        requests.for_each(|request| request.end(Ending::Completed));
    }
}

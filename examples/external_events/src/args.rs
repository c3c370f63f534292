//! The command line. Every bound of the gateway is an option with a default.

use std::{net::SocketAddr, time::Duration};

use async_nats::ServerAddr;
use clap::Parser;
use example_support::{between, number};

const EXAMPLES: &str = "\
Try it:
  curl -i 'http://127.0.0.1:8080/orders/7?wait=30s' &       waits
  curl -i -d shipped http://127.0.0.1:8080/orders/7         changes the order: it is answered

Several gateways, one NATS server with JetStream (nats-server -js):
  external_events --nats 127.0.0.1:4222
  external_events --nats 127.0.0.1:4222 --listen 127.0.0.1:8081

Ctrl-C or SIGTERM answers waiting requests with 503 and ends; a second one aborts.
The exit code is 0 when all were answered, 1 when connections were still open or it cannot run, 2
when an argument is wrong, 130 after a second Ctrl-C.";

/// An HTTP long-poll gateway: GET /orders/{id} waits until the order changes, POST /orders/{id}
/// changes it.
///
/// GET answers 200 with {id, epoch, version, state}, or 204 when nothing came within `?wait=` (a
/// duration like 30s). With `?seen=VERSION&epoch=EPOCH` it waits for a later version than that,
/// with `?seen=0` for any (so it has the order as it is, if that is known), and without it for the
/// next change. Versions begin anew in another epoch; a client that names an old one is answered at
/// once: 200, or 410 with {id, epoch} when the order has not changed in this one. The body of a POST
/// is the new state, any text.
#[derive(Debug, Clone, Parser)]
#[command(name = "external_events", version, after_help = EXAMPLES, allow_negative_numbers = true)]
pub struct Args {
    /// Address to listen on; port 0 picks a free one (no authentication: keep it on loopback)
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,

    /// NATS server to share events over, with JetStream [default: events stay in this process]
    #[arg(long, value_name = "URL")]
    pub nats: Option<ServerAddr>,

    /// Longest `wait` a request may ask for
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    #[arg(allow_hyphen_values = true, value_parser = between("1ms", "1h"))]
    pub max_wait: Duration,

    /// Requests that may wait at once; one more is answered with 503
    #[arg(long, value_name = "N", default_value = "10000")]
    #[arg(value_parser = number::<usize>(1..=1_000_000))]
    pub max_parked: usize,

    /// Orders kept, by every gateway and by the stream that the first one makes; of more, those
    /// that have not changed for the longest are forgotten
    #[arg(long, value_name = "N", default_value = "100000")]
    #[arg(value_parser = number::<usize>(1..=10_000_000))]
    pub max_orders: usize,

    /// How long to wait for open connections to end after Ctrl-C
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    #[arg(allow_hyphen_values = true, value_parser = between("0s", "1h"))]
    pub shutdown_within: Duration,

    /// Where Prometheus metrics and the live page are served; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:0")]
    pub metrics_addr: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_arguments_are_refused_with_their_bounds() {
        example_support::assert_parsed::<Args>(&[
            ("--max-wait=1ms", ""),
            ("--max-wait=1h", ""),
            ("--max-wait=0s", "from 1ms to 1h"),
            ("--max-wait=-1s", "from 1ms to 1h"),
            ("--max-wait=18446744073709551616s", "from 1ms to 1h"),
            ("--max-parked=1000000", ""),
            ("--max-parked=0", "from 1 to 1000000"),
            ("--max-parked=many", "from 1 to 1000000"),
            ("--max-orders=10000001", "from 1 to 10000000"),
            ("--shutdown-within=0s", ""),
            ("--shutdown-within=-1s", "from 0s to 1h"),
            ("--shutdown-within=61m", "from 0s to 1h"),
            ("--nats=nats://name:secret@127.0.0.1", ""),
            (
                "--nats=http://127.0.0.1",
                "invalid scheme for NATS server URL: http",
            ),
            ("--listen=8080", "IP:PORT"),
            ("--metrics-addr=127.0.0.1:65536", "IP:PORT"),
            ("--unknown", "unexpected argument"),
        ]);
    }
}

//! Changes over NATS. A JetStream stream keeps the last message of each subject `orders.<id>`, so
//! it *is* the state of all orders, the sequence number of a message is the version, and the moment
//! when the stream was made is the epoch. A gateway reads it from the beginning once, and then
//! follows; after a lost connection it goes on at the message it stopped at. What was published
//! meanwhile is late, but not lost, as it would be with plain NATS.

use std::{io, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use async_nats::jetstream::consumer::{DeliverPolicy, pull::OrderedConfig};
use async_nats::jetstream::{self, stream, stream::Stream};
use async_nats::{ConnectOptions, Event, connection::State};
use futures_util::StreamExt;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::orders::{Order, Orders, Seen};

const STREAM: &str = "ORDERS";
const SUBJECTS: &str = "orders.*";
const PREFIX: &str = "orders.";
/// Between two attempts to connect, or to follow.
const RETRY_MAX: Duration = Duration::from_millis(500);
/// A server that answers no ping for this long, twice, is gone.
const PING: Duration = Duration::from_secs(5);
/// For an acknowledgement, or an answer to a question about the stream.
const ANSWER: Duration = Duration::from_secs(3);
/// To have read everything at the start.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A connection that reconnects by itself.
#[derive(Clone)]
pub struct Nats {
    jetstream: jetstream::Context,
    /// Counts the connections.
    connections: watch::Receiver<u64>,
    orders: Orders,
    orders_max: usize,
}

impl Nats {
    /// Connects, reads the last change of each order, and follows the stream from there on.
    ///
    /// # Errors
    /// When the server cannot be reached, has no JetStream, or does not send the stream.
    pub async fn start(url: &str, orders: &Orders, orders_max: usize) -> Result<Nats> {
        let (connected, connections) = watch::channel(0);
        let client = ConnectOptions::new()
            .name("external_events")
            .ping_interval(PING)
            .reconnect_delay_callback(|attempts| RETRY_MAX.min(RETRY_MAX / 5 * attempts as u32))
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    connected.send_modify(|connections| *connections += 1);
                }
                async move { eprintln!("nats: {event}") }
            })
            .connect(url)
            .await
            .with_context(|| format!("cannot connect to the NATS server at {url}"))?;
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(ANSWER);
        let nats = Nats {
            jetstream,
            connections,
            orders: orders.clone(),
            orders_max,
        };
        nats.stream()
            .await
            .context("is the NATS server started with -js?")?;
        let (caught_up, ready) = oneshot::channel();
        tokio::spawn(nats.clone().follow(Some(caught_up)));
        let read = timeout(CATCH_UP, ready).await;
        read.map_err(|_| anyhow!("cannot read stream {STREAM} within {CATCH_UP:?}"))??;
        Ok(nats)
    }

    /// Publishes a change; its epoch and version, once the server has stored it. An error: it may
    /// be published all the same. If the stream is made anew just then, the epoch is the one
    /// before: that client is told of the new one when it asks.
    pub(crate) async fn publish(&self, id: &str, state: String) -> Result<Seen> {
        let epoch = self.orders.epoch();
        let state_of_connection = self.jetstream.client().connection_state();
        ensure!(
            state_of_connection == State::Connected,
            "not connected to NATS"
        );
        let message = self
            .jetstream
            .publish(format!("{PREFIX}{id}"), state.into());
        Ok(Seen {
            epoch,
            version: message.await?.await?.sequence,
        })
    }

    /// The stream, made by the gateway that comes first.
    async fn stream(&self) -> Result<Stream> {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECTS.to_owned()],
            max_messages_per_subject: 1,
            max_messages: self.orders_max as i64,
            ..Default::default()
        };
        let stream = self.jetstream.get_or_create_stream(config).await;
        stream.with_context(|| format!("cannot get or make stream {STREAM}"))
    }

    /// Follows the stream for as long as the program runs, whatever becomes of the connection.
    async fn follow(mut self, mut caught_up: Option<oneshot::Sender<()>>) {
        loop {
            if let Err(error) = self.follow_connection(&mut caught_up).await {
                eprintln!("nats: {error:#}; trying again");
                sleep(RETRY_MAX).await;
            }
        }
    }

    /// Follows until there is a new connection: the consumer may have ended with the old one.
    async fn follow_connection(
        &mut self,
        caught_up: &mut Option<oneshot::Sender<()>>,
    ) -> Result<()> {
        self.connections.mark_unchanged(); // before the consumer is made
        let (stream, orders) = (self.stream().await?, self.orders.clone());
        let epoch = epoch(&stream);
        if orders.begin(epoch) && caught_up.is_none() {
            eprintln!("nats: stream {STREAM} is another one now, whose versions begin anew");
        }
        let deliver_policy = match orders.position() {
            0 => DeliverPolicy::LastPerSubject,
            position => DeliverPolicy::ByStartSequence {
                start_sequence: position + 1,
            },
        };
        let filter_subject = SUBJECTS.to_owned();
        let config = OrderedConfig {
            deliver_policy,
            filter_subject,
            ..Default::default()
        };
        let consumer = stream
            .create_consumer(config)
            .await
            .context("cannot make a consumer")?;
        let unchanged = self::epoch(&self.stream().await?) == epoch;
        ensure!(unchanged, "stream {STREAM} was made anew just now");
        let mut pending = consumer.cached_info().num_pending;
        let mut messages = consumer.messages().await?;
        loop {
            if pending == 0
                && let Some(caught_up) = caught_up.take()
            {
                let _ = caught_up.send(()); // the caller may have given up
            }
            let message = tokio::select! {
                message = messages.next() => message.context("the consumer ended")??,
                _ = self.connections.changed() => return Ok(()),
            };
            let info = message.info().map_err(io::Error::other)?;
            pending = info.pending;
            let Some(id) = message.subject.strip_prefix(PREFIX) else {
                continue;
            };
            let state = String::from_utf8_lossy(&message.payload).into();
            orders.change(Order {
                id: id.into(),
                epoch,
                version: info.stream_sequence,
                state,
            });
        }
    }
}

/// When the stream was made, in microseconds: a whole number in JavaScript, too.
fn epoch(stream: &Stream) -> u64 {
    u64::try_from(stream.cached_info().created.unix_timestamp_nanos() / 1000).unwrap_or(0)
}

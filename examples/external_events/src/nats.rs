//! Changes over NATS. A JetStream stream keeps the last message of each subject `orders.<id>`, so
//! it *is* the state of all orders. A message's sequence number is the version, and the time when
//! the stream was made is the epoch. A gateway reads the stream from the beginning once, then
//! follows it; after a lost connection it goes on where it stopped. Messages that were published
//! meanwhile are late, but not lost, as they would be with plain NATS.

use std::{io, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use async_nats::jetstream::consumer::{Consumer, DeliverPolicy, pull::OrderedConfig};
use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind};
use async_nats::jetstream::{self, ErrorCode, stream, stream::Stream};
use async_nats::{ConnectOptions, Event, ServerAddr, connection::State};
use example_support::say;
use futures_util::StreamExt;
use tokio::sync::{oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::orders::{Order, Orders, Seen};

const STREAM: &str = "ORDERS";
const SUBJECTS: &str = "orders.*";
const PREFIX: &str = "orders.";
/// The longest time between two attempts to connect, or to follow.
const RETRY_MAX: Duration = Duration::from_millis(500);
/// A server that leaves a ping unanswered for this long, twice, counts as gone.
const PING: Duration = Duration::from_secs(5);
/// The longest wait for an acknowledgement, or for an answer about the stream.
const ANSWER: Duration = Duration::from_secs(3);
/// The number of attempts to get or make the stream, while another gateway makes it.
const MAKING_ATTEMPTS: usize = 5;
/// The time between two such attempts.
const MAKING_PAUSE: Duration = Duration::from_millis(100);
/// The time between two checks that the stream is still the same one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time to read the whole stream at the start.
const CATCH_UP: Duration = Duration::from_secs(30);

/// A connection to the NATS server that reconnects by itself.
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
    pub async fn start(server: &ServerAddr, orders: &Orders, orders_max: usize) -> Result<Nats> {
        // Each new connection is counted, so that the follower notices it.
        let (connected, connections) = watch::channel(0);
        let retry_after = |attempts: usize| {
            let attempts = u32::try_from(attempts).unwrap_or(u32::MAX);
            RETRY_MAX.min((RETRY_MAX / 5).saturating_mul(attempts))
        };
        let on_event = move |event| {
            if matches!(event, Event::Connected) {
                connected.send_modify(|connections| *connections += 1);
            }
            async move { say(format_args!("nats: {event}")) }
        };
        let options = ConnectOptions::new()
            .name("external_events")
            .ping_interval(PING)
            .reconnect_delay_callback(retry_after)
            .event_callback(on_event);
        // Errors name only the host and port: the URL may have a password.
        let host = server.host();
        let port = server.port();
        let client = options.connect(server).await;
        let client = client
            .with_context(|| format!("cannot connect to the NATS server at {host}:{port}"))?;
        let mut jetstream = jetstream::new(client);
        jetstream.set_timeout(ANSWER);
        let nats = Nats {
            jetstream,
            connections,
            orders: orders.clone(),
            orders_max,
        };

        // Fail here if the server has no JetStream, not at the first client's request.
        nats.stream().await?;

        // Serve once everything has been read: from then on an unknown order has not changed.
        let (caught_up, ready) = oneshot::channel();
        tokio::spawn(nats.clone().follow(Some(caught_up)));
        let read = timeout(CATCH_UP, ready).await;
        read.map_err(|_| anyhow!("cannot read stream {STREAM} within {CATCH_UP:?}"))??;
        Ok(nats)
    }

    /// Publishes a change. Returns its epoch and version, once the server has stored it. After an
    /// error the change may have been published all the same. If the stream is made anew meanwhile,
    /// the epoch is the previous one: the client hears of the new one when it asks.
    pub(crate) async fn publish(&self, id: &str, state: String) -> Result<Seen> {
        let epoch = self.orders.epoch();
        ensure!(self.is_connected(), "not connected to NATS");
        let subject = format!("{PREFIX}{id}");
        let sent = self.jetstream.publish(subject, state.into()).await?;
        let acknowledged = sent.await?;
        Ok(Seen {
            epoch,
            version: acknowledged.sequence,
        })
    }

    fn is_connected(&self) -> bool {
        self.jetstream.client().connection_state() == State::Connected
    }

    /// Gets the stream; the first gateway makes it.
    async fn stream(&self) -> Result<Stream> {
        let config = stream::Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECTS.to_owned()],
            max_messages_per_subject: 1,
            max_messages: i64::try_from(self.orders_max).unwrap_or(i64::MAX),
            ..Default::default()
        };
        let mut attempts = 1;
        loop {
            let error = match self.jetstream.get_or_create_stream(config.clone()).await {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            // Gateways that start together may all try to make the stream, and the server may
            // refuse all but one of them: the others try again.
            if !is_made_elsewhere(&error) || attempts == MAKING_ATTEMPTS {
                let hint = hint(&error);
                let failed = format!("cannot get or make stream {STREAM} of {SUBJECTS}{hint}");
                return Err(error).context(failed);
            }
            attempts += 1;
            sleep(MAKING_PAUSE).await;
        }
    }

    /// Follows the stream for as long as the program runs, whatever happens to the connection.
    async fn follow(mut self, mut caught_up: Option<oneshot::Sender<()>>) {
        loop {
            if let Err(error) = self.follow_connection(&mut caught_up).await {
                say(format_args!("nats: {error:#}; trying again"));
                sleep(RETRY_MAX).await;
            }
        }
    }

    /// Fails if the stream is no longer the one of this epoch.
    async fn ensure_same(&self, epoch: u64) -> Result<()> {
        let same = self::epoch(&self.stream().await?) == epoch;
        ensure!(same, "stream {STREAM} was made anew just now");
        Ok(())
    }

    /// Follows the stream until there is a new connection: the consumer may have ended with the old
    /// one.
    async fn follow_connection(
        &mut self,
        caught_up: &mut Option<oneshot::Sender<()>>,
    ) -> Result<()> {
        // Mark before the consumer is made, so that a connection lost from here on is noticed.
        self.connections.mark_unchanged();

        // A stream that was made anew has other versions.
        let stream = self.stream().await?;
        let epoch = epoch(&stream);
        let another = self.orders.begin(epoch);
        if another && caught_up.is_none() {
            say(format_args!(
                "nats: stream {STREAM} is another one now, whose versions begin anew"
            ));
        }

        let consumer = self.consumer(&stream).await?;
        self.ensure_same(epoch).await?;

        // Read message by message; `pending` counts those that the server still has to send.
        let mut pending = consumer.cached_info().num_pending;
        let mut messages = consumer.messages().await?;
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        looks.reset(); // the first look was just now
        loop {
            if pending == 0
                && let Some(caught_up) = caught_up.take()
            {
                let _ = caught_up.send(()); // the caller may have given up
            }
            let message = tokio::select! {
                message = messages.next() => message.context("the consumer ended")??,
                _ = self.connections.changed() => return Ok(()),
                // If the stream is deleted, the consumer waits for a new one of the same name, and
                // goes on after a version that the new stream does not have yet.
                _ = looks.tick() => {
                    if self.is_connected() {
                        self.ensure_same(epoch).await?;
                    }
                    continue;
                }
            };
            let info = message.info().map_err(io::Error::other)?;
            pending = info.pending;
            let Some(id) = message.subject.strip_prefix(PREFIX) else {
                continue;
            };
            let state = String::from_utf8_lossy(&message.payload).into();
            self.orders.change(Order {
                id: id.into(),
                epoch,
                version: info.stream_sequence,
                state,
            });
        }
    }

    /// Makes a consumer that goes on after the last message that was read.
    async fn consumer(&self, stream: &Stream) -> Result<Consumer<OrderedConfig>> {
        let deliver_policy = match self.orders.position() {
            0 => DeliverPolicy::LastPerSubject,
            position => DeliverPolicy::ByStartSequence {
                start_sequence: position.saturating_add(1),
            },
        };
        let config = OrderedConfig {
            deliver_policy,
            filter_subject: SUBJECTS.to_owned(),
            ..Default::default()
        };
        let consumer = stream.create_consumer(config).await;
        consumer.context("cannot make a consumer")
    }
}

/// Returns true if the server refused to make the stream because one with its name or subjects
/// exists.
fn is_made_elsewhere(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
        return false;
    };
    let code = refusal.error_code();
    code == ErrorCode::STREAM_SUBJECT_OVERLAP || code == ErrorCode::STREAM_NAME_EXIST
}

/// Names a likely cause of the error.
fn hint(error: &CreateStreamError) -> &'static str {
    match error.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => " (is the NATS server started with -js?)",
        _ if is_made_elsewhere(error) => " (does another program's stream have its subjects?)",
        _ => "",
    }
}

/// Returns the time at which the stream was made, in microseconds, which JavaScript represents
/// exactly.
fn epoch(stream: &Stream) -> u64 {
    let made_ns = stream.cached_info().created.unix_timestamp_nanos();
    u64::try_from(made_ns / 1000).unwrap_or(0)
}

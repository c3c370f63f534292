//! Changes over NATS. A JetStream stream keeps the last message of each subject `orders.<id>`, so
//! it *is* the state of all orders, the sequence number of a message is the version, and the moment
//! when the stream was made is the epoch. A gateway reads it from the beginning once, and then
//! follows; after a lost connection it goes on at the message it stopped at. What was published
//! meanwhile is late, but not lost, as it would be with plain NATS.

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
/// A server that answers no ping for this long, twice, is gone.
const PING: Duration = Duration::from_secs(5);
/// The longest time until an acknowledgement, or an answer to a question about the stream.
const ANSWER: Duration = Duration::from_secs(3);
/// The number of attempts to get or make the stream, while another gateway makes it.
const MAKING_ATTEMPTS: usize = 5;
/// The time between two of them.
const MAKING_PAUSE: Duration = Duration::from_millis(100);
/// The time between two looks at whether the stream is the same one.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The longest time until everything is read at the start.
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
        // Its URL may have a password.
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

        // A server without JetStream is found here, and not by the first client.
        nats.stream().await?;

        // Serve when everything has been read: an order that is not known has not changed.
        let (caught_up, ready) = oneshot::channel();
        tokio::spawn(nats.clone().follow(Some(caught_up)));
        let read = timeout(CATCH_UP, ready).await;
        read.map_err(|_| anyhow!("cannot read stream {STREAM} within {CATCH_UP:?}"))??;
        Ok(nats)
    }

    /// Publishes a change. Returns its epoch and version, once the server has stored it. After an
    /// error it may have been published all the same. If the stream is made anew just then, the
    /// epoch is the one before: that client hears of the new one when it asks.
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

    /// Gets the stream, which the first gateway makes.
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
            // Of gateways that start together several ask for the stream before it is there, and
            // the server may refuse to make it for all but one: those ask again.
            if !is_made_elsewhere(&error) || attempts == MAKING_ATTEMPTS {
                let hint = hint(&error);
                let failed = format!("cannot get or make stream {STREAM} of {SUBJECTS}{hint}");
                return Err(error).context(failed);
            }
            attempts += 1;
            sleep(MAKING_PAUSE).await;
        }
    }

    /// Follows the stream for as long as the program runs, whatever becomes of the connection.
    async fn follow(mut self, mut caught_up: Option<oneshot::Sender<()>>) {
        loop {
            if let Err(error) = self.follow_connection(&mut caught_up).await {
                say(format_args!("nats: {error:#}; trying again"));
                sleep(RETRY_MAX).await;
            }
        }
    }

    /// Fails if the stream is another one now than in this epoch.
    async fn ensure_same(&self, epoch: u64) -> Result<()> {
        let same = self::epoch(&self.stream().await?) == epoch;
        ensure!(same, "stream {STREAM} was made anew just now");
        Ok(())
    }

    /// Follows until there is a new connection: the consumer may have ended with the old one.
    async fn follow_connection(
        &mut self,
        caught_up: &mut Option<oneshot::Sender<()>>,
    ) -> Result<()> {
        // Before the consumer is made: a connection that is lost from here on is noticed.
        self.connections.mark_unchanged();

        // Another stream than before has other versions.
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

        // One message after the other; `pending` counts those that the server has still to send.
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
                // When the stream is deleted, the consumer waits for one of its name and goes on
                // there, behind versions that the new one does not have yet.
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

    /// Makes a consumer that goes on behind the last message that was read.
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

/// Returns true if the server has refused to make the stream since one of its name or subjects is
/// there.
fn is_made_elsewhere(error: &CreateStreamError) -> bool {
    let CreateStreamErrorKind::JetStream(refusal) = error.kind() else {
        return false;
    };
    let code = refusal.error_code();
    code == ErrorCode::STREAM_SUBJECT_OVERLAP || code == ErrorCode::STREAM_NAME_EXIST
}

/// Names a likely cause.
fn hint(error: &CreateStreamError) -> &'static str {
    match error.kind() {
        CreateStreamErrorKind::JetStreamUnavailable => " (is the NATS server started with -js?)",
        _ if is_made_elsewhere(error) => " (does another program's stream have its subjects?)",
        _ => "",
    }
}

/// Returns the time at which the stream was made, in microseconds: a whole number in JavaScript,
/// too.
fn epoch(stream: &Stream) -> u64 {
    let made_ns = stream.cached_info().created.unix_timestamp_nanos();
    u64::try_from(made_ns / 1000).unwrap_or(0)
}

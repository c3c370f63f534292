//! The actor: a task that owns the lists and a `DelayQueue` of the deadlines, and is sent what to
//! do. It answers each request over a oneshot. Its channel has no bound: who waits sends no more.

use std::time::Duration;

use foldhash::HashMap;
use smallvec::SmallVec;
use tokio::{
    select,
    sync::{mpsc, oneshot},
};
use tokio_util::time::{DelayQueue, delay_queue::Key};

use super::wait::Waits;
use crate::{contender::Peer, request::Request};

enum Message {
    Park(Parked, Duration),
    Event(u64),
    Settle(oneshot::Sender<()>),
}

struct Parked {
    request: Request,
    keys: SmallVec<[u64; 3]>,
    reply: oneshot::Sender<bool>,
}

#[derive(Default)]
struct Actor {
    lists: HashMap<u64, Vec<(Key, Request)>>,
    parked: DelayQueue<Parked>,
}

impl Actor {
    async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Message>) {
        use std::future::poll_fn;
        loop {
            select! {
                message = inbox.recv() => match message {
                    Some(message) => self.receive(message),
                    None => return,
                },
                Some(late) = poll_fn(|context| self.parked.poll_expired(context)) => {
                    self.over(late.key(), late.into_inner(), false);
                }
            }
        }
    }

    fn receive(&mut self, message: Message) {
        match message {
            Message::Park(parked, _) if parked.request.is_ready() => _ = parked.reply.send(true),
            Message::Park(parked, timeout) => {
                let (keys, request) = (parked.keys.clone(), parked.request);
                let id = self.parked.insert(parked, timeout);
                keys.iter().for_each(|key| self.lists.entry(*key).or_default().push((id, request)));
            }
            Message::Event(key) => {
                let list = self.lists.get(&key).map_or(&[][..], |list| list);
                let ready = list.iter().filter(|(_, request)| request.is_ready());
                let ready: SmallVec<[Key; 8]> = ready.map(|(id, _)| *id).collect();
                for id in ready {
                    if let Some(parked) = self.parked.try_remove(&id) {
                        self.over(id, parked.into_inner(), true);
                    }
                }
            }
            Message::Settle(done) => _ = done.send(()),
        }
    }

    fn over(&mut self, id: Key, parked: Parked, completed: bool) {
        for key in &parked.keys {
            if let Some(list) = self.lists.get_mut(key) {
                list.retain(|(other, _)| *other != id);
                if list.is_empty() {
                    self.lists.remove(key);
                }
            }
        }
        _ = parked.reply.send(completed);
    }
}

pub(crate) struct Mailbox(mpsc::UnboundedSender<Message>);

impl Mailbox {
    fn send(&self, message: Message) {
        self.0.send(message).expect("the actor runs as long as the runtime");
    }
}

impl Peer for Mailbox {
    const NAME: &'static str = "actor";

    fn start() -> anyhow::Result<Self> {
        let (send, inbox) = mpsc::unbounded_channel();
        tokio::spawn(Actor::default().run(inbox));
        Ok(Mailbox(send))
    }
}

impl Waits for Mailbox {
    async fn park<const K: usize>(&self, keys: [u64; K], timeout: Duration, request: Request) {
        let (reply, over) = oneshot::channel();
        let parked = Parked { request, keys: SmallVec::from_slice(&keys), reply };
        self.send(Message::Park(parked, timeout));
        request.over(over.await == Ok(true));
    }

    fn event(&self, key: u64) {
        self.send(Message::Event(key));
    }

    async fn settle(&self) {
        let (done, settled) = oneshot::channel();
        self.send(Message::Settle(done));
        settled.await.expect("the actor runs as long as the runtime");
    }
}

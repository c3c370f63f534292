//! rdkafka as a driver: see `protocol.py`.
#![allow(clippy::disallowed_methods, reason = "no timer of this project is in it")]

use std::time::{Duration, Instant};

use broker_clients::{Answer, Command, WAIT, serve};
use rdkafka::{
    ClientConfig, ClientContext, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance},
    error::KafkaError,
    producer::{FutureProducer, FutureRecord, Producer},
};

fn config(address: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address).set("log_level", "0");
    if std::env::var("KAFKA").is_ok_and(|version| version == "0.9.0.1") {
        config.set("api.version.request", "false").set("broker.version.fallback", "0.9.0.1");
    }
    config
}

async fn produce(address: &str, command: Command) -> Answer {
    let mut config = config(address);
    config.set("acks", command.text("acks", "all"));
    config.set("compression.type", command.text("codec", "none"));
    config.set("request.timeout.ms", command.text("timeout_ms", "30000"));
    config.set("linger.ms", "20").set("message.max.bytes", "100000000");
    if command.get("idempotent", 0) == 1 {
        config.set("enable.idempotence", "true");
    } else {
        config.set("retries", "0");
    }
    let producer: FutureProducer = config.create()?;
    let (topic, partition) = (command.text("topic", ""), command.get("partition", 0));
    let values = command.values();
    let mut sent = Vec::new();
    for value in &values {
        let record = FutureRecord::<(), _>::to(&topic).partition(partition).payload(value);
        sent.push(producer.send_result(record).map_err(|(error, _)| error)?);
    }
    for delivery in sent {
        delivery.await?.map_err(|(error, _)| error)?;
    }
    Ok(Some(Vec::new()))
}

fn consume(address: &str, command: Command) -> Answer {
    let mut config = config(address);
    config.set("group.id", "unused").set("enable.auto.commit", "false");
    config.set("fetch.wait.max.ms", command.text("wait_ms", "500"));
    config.set("fetch.min.bytes", command.text("min_bytes", "1"));
    config.set("socket.timeout.ms", "60000");
    let reader: BaseConsumer = config.create()?;
    let mut at = TopicPartitionList::new();
    let (topic, partition) = (command.text("topic", ""), command.get("partition", 0));
    at.add_partition_offset(&topic, partition, Offset::Beginning)?;
    reader.assign(&at)?;
    let (mut found, end) = (Vec::new(), Instant::now() + WAIT);
    while found.len() < command.get("count", 1) {
        if let Some(message) = reader.poll(Duration::from_millis(100)) {
            let message = message?;
            found.push(String::from_utf8_lossy(message.payload().unwrap_or_default()).into_owned());
        }
        if Instant::now() > end {
            return Err(format!("{} consumed", found.len()).into());
        }
    }
    Ok(Some(found))
}

struct Told;

impl ClientContext for Told {}

impl ConsumerContext for Told {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let mut mine = Vec::new();
        if let Rebalance::Assign(partitions) = rebalance {
            mine = partitions.elements().iter().map(|at| at.partition().to_string()).collect();
            mine.sort();
        }
        println!("assigned {}", mine.join(","));
    }
}

fn member(address: &str, command: Command) -> Answer {
    let mut config = config(address);
    config.set("group.id", command.text("group", "")).set("auto.offset.reset", "earliest");
    let protocol = command.text("protocol", "classic");
    config.set("group.protocol", &protocol);
    if protocol == "classic" {
        config.set("session.timeout.ms", "6000").set("heartbeat.interval.ms", "500");
    }
    let reader: BaseConsumer<Told> = config.create_with_context(Told)?;
    reader.subscribe(&[&command.text("topic", "")])?;
    loop {
        if let Some(message) = reader.poll(Duration::from_millis(100)) {
            message?;
        }
    }
}

fn offset(address: &str, command: Command) -> Answer {
    let reader: BaseConsumer = config(address).create()?;
    let mut at = TopicPartitionList::new();
    let time = Offset::Offset(command.get("time_ms", 0));
    at.add_partition_offset(&command.text("topic", ""), command.get("partition", 0), time)?;
    let found = reader.offsets_for_times(at, WAIT)?;
    let found = found.elements();
    found[0].error()?;
    Ok(Some(vec![match found[0].offset() {
        Offset::Offset(offset) => offset.to_string(),
        _ => "none".to_owned(),
    }]))
}

async fn create(address: &str, command: Command) -> Answer {
    let admin: AdminClient<DefaultClientContext> = config(address).create()?;
    let (topic, config) = (command.text("topic", ""), command.text("config", ""));
    let (name, value) = config.split_once(':').ok_or("NAME:VALUE")?;
    let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1)).set(name, value);
    let made =
        admin.create_topics([&new], &AdminOptions::new().request_timeout(Some(WAIT))).await?;
    made.into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|(_, code)| KafkaError::AdminOp(code))?;
    Ok(Some(Vec::new()))
}

async fn delete(address: &str, command: Command) -> Answer {
    let admin: AdminClient<DefaultClientContext> = config(address).create()?;
    let mut at = TopicPartitionList::new();
    let before = Offset::Offset(command.get("before", 0));
    at.add_partition_offset(&command.text("topic", ""), command.get("partition", 0), before)?;
    let options = AdminOptions::new().request_timeout(Some(WAIT));
    let deleted = admin.delete_records(&at, &options).await?;
    deleted.elements()[0].error()?;
    Ok(Some(Vec::new()))
}

fn transaction(address: &str) -> Answer {
    let producer: FutureProducer = config(address).set("transactional.id", "x").create()?;
    producer.init_transactions(WAIT)?;
    Ok(Some(Vec::new()))
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    serve(|address, verb, command| match verb {
        "produce" => runtime.block_on(produce(address, command)),
        "consume" => consume(address, command),
        "member" => member(address, command),
        "offset" => offset(address, command),
        "create" => runtime.block_on(create(address, command)),
        "delete" => runtime.block_on(delete(address, command)),
        "transaction" => transaction(address),
        _ => Ok(None),
    });
}

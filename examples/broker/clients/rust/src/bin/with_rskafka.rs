//! rskafka as a driver: see `protocol.py`. It has acks=all only, with a time-out of 30 s, and
//! neither groups, nor an idempotent producer, nor configurations of topics.

use std::{collections::BTreeMap, time::Duration};

use broker_clients::{Answer, Command, WAIT, serve};
use chrono::{DateTime, Utc};
use rskafka::{
    BackoffConfig,
    client::{
        ClientBuilder,
        partition::{Compression, OffsetAt, PartitionClient, UnknownTopicHandling},
    },
    record::Record,
};

/// It makes a topic by asking for one, not by naming it.
async fn partition(
    address: &str,
    command: &Command,
) -> Result<PartitionClient, Box<dyn std::error::Error>> {
    let backoff = BackoffConfig { deadline: Some(Duration::from_secs(1)), ..Default::default() };
    let client =
        ClientBuilder::new(vec![address.to_owned()]).backoff_config(backoff).build().await?;
    let (topic, at) = (command.text("topic", ""), command.get("partition", 0));
    if !client.list_topics().await?.iter().any(|known| known.name == topic) {
        client.controller_client()?.create_topic(&topic, 3, 3, 5000).await?;
    }
    Ok(client.partition_client(topic, at, UnknownTopicHandling::Retry).await?)
}

async fn produce(address: &str, command: Command) -> Answer {
    let compression = match &*command.text("codec", "none") {
        "gzip" => Compression::Gzip,
        "snappy" => Compression::Snappy,
        "lz4" => Compression::Lz4,
        "zstd" => Compression::Zstd,
        _ => Compression::NoCompression,
    };
    let only = [("acks", "all"), ("idempotent", "0"), ("timeout_ms", "30000")];
    if only.iter().any(|(name, value)| command.text(name, value) != *value) {
        return Ok(None);
    }
    let record = |value| Record {
        key: None,
        value: Some(value),
        headers: BTreeMap::new(),
        timestamp: Utc::now(),
    };
    let records = command.values().into_iter().map(record).collect();
    partition(address, &command).await?.produce(records, compression).await?;
    Ok(Some(Vec::new()))
}

async fn consume(address: &str, command: Command) -> Answer {
    let partition = partition(address, &command).await?;
    let (min_bytes, wait_ms) = (command.get("min_bytes", 1), command.get("wait_ms", 500));
    let mut next = partition.get_offset(OffsetAt::Earliest).await?;
    let mut found = Vec::new();
    while found.len() < command.get("count", 1) {
        let (records, _) = partition.fetch_records(next, min_bytes..1 << 20, wait_ms).await?;
        next = records.last().map_or(next, |last| last.offset + 1);
        let values = records.into_iter().map(|at| at.record.value.unwrap_or_default());
        found.extend(values.map(|value| String::from_utf8_lossy(&value).into_owned()));
    }
    Ok(Some(found))
}

async fn offset(address: &str, command: Command) -> Answer {
    let time = DateTime::from_timestamp_millis(command.get("time_ms", 0)).ok_or("time_ms")?;
    let found = partition(address, &command).await?.get_offset(OffsetAt::Timestamp(time)).await?;
    Ok(Some(vec![if found < 0 { "none".to_owned() } else { found.to_string() }]))
}

async fn delete(address: &str, command: Command) -> Answer {
    let before = command.get("before", 0);
    partition(address, &command).await?.delete_records(before, 5000).await?;
    Ok(Some(Vec::new()))
}

async fn answer(address: &str, verb: &str, command: Command) -> Answer {
    match verb {
        "produce" => produce(address, command).await,
        "consume" => consume(address, command).await,
        "offset" => offset(address, command).await,
        "delete" => delete(address, command).await,
        _ => Ok(None),
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime starts");
    serve(|address, verb, command| {
        let answer = async { tokio::time::timeout(WAIT, answer(address, verb, command)).await? };
        runtime.block_on(answer)
    });
}

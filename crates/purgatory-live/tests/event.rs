//! The content of an event.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::{self, Display};
use std::time::Duration;

use purgatory::{
    BoxedOperation, OperationId, Purgatory, ReplicaSets, Replies, Rule, Watches, Watermarks, when,
};
use purgatory_live::Live;
use serde_json::{Value, json};
use timer_core::{ManualTimer, SystemTimer, TimeHistogram};

const MS: Duration = Duration::from_millis(1);

fn event(live: &Live) -> Value {
    let text = live.event();
    assert!(
        !text.contains('\n'),
        "one line is one `data` of an event stream"
    );
    serde_json::from_str(&text).unwrap()
}

fn park(
    purgatory: &Purgatory<&'static str, BoxedOperation>,
    keys: &[&'static str],
    timeout: Duration,
) -> OperationId {
    let operation = when(|| false, drop);
    let parked = purgatory.try_complete_else_watch(operation, keys, timeout);
    parked.unwrap().unwrap()
}

#[test]
fn event_has_the_snapshot_with_keys_as_text() {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::on(&timer, "orders").unwrap();
    let live = Live::new().purgatory(&purgatory);
    // The first event starts the timing of waits.
    event(&live);
    park(&purgatory, &["a", "<b>\"</b>"], 100 * MS);
    timer.advance(20 * MS);
    park(&purgatory, &["a"], 30 * MS);
    let taken = park(&purgatory, &["a"], 30 * MS);
    assert!(purgatory.take(taken).reached().is_some());
    timer.advance(35 * MS);

    let event = event(&live);
    let timers = &event["timers"];
    assert_eq!(*timers, json!([]), "a shared timer is added separately");

    // The counts.
    let seen = &event["purgatories"][0];
    assert_eq!(seen["name"], "orders");
    let names = "parked parked_total expired completed cancelled taken".split(' ');
    let counts = names.map(|name| seen["stats"][name].as_u64().unwrap());
    assert!(counts.eq([1, 3, 1, 0, 0, 1]), "{seen}");
    assert_eq!(seen["stats"]["refused_full"], 0);
    assert_eq!(seen["key_count"], 2);

    // The busiest keys, as text.
    let busiest = seen["busiest"].as_array().unwrap();
    for key in ["\"a\"", r#""<b>\"</b>""#] {
        let of_one = json!({"key": key, "waiters": 1});
        assert!(busiest.contains(&of_one), "{busiest:?}");
    }

    // The remaining operation, with its times in seconds.
    let oldest = &seen["oldest"][0];
    assert_eq!(oldest["keys"], json!(["\"a\"", r#""<b>\"</b>""#]));
    assert_eq!(oldest["age"], 0.055);
    assert_eq!(oldest["expires_in"], 0.045);
    assert_eq!(oldest["under_check"], Value::Null);
    assert_eq!(oldest["keys_left_out"], 0);
    assert!(oldest["id"].is_string());
    assert_eq!(seen["oldest"].as_array().unwrap().len(), 1);
    assert_eq!(seen["under_check"], json!([]));

    // The other operation waited 30 ms.
    let bounds = TimeHistogram::BOUNDS_S;
    let bucket = bounds.iter().position(|&bound_s| bound_s == 0.05).unwrap();
    let expired = &seen["minute"]["waits"]["expired"];
    assert_eq!(expired["buckets"][bucket], 1);
    assert_eq!(expired["sums_s"][bucket], 0.03);
    assert_eq!(seen["minute"]["waits"]["lateness"]["count"], 1);
}

#[test]
fn keys_are_written_by_the_given_function() {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::on(&timer, "orders").unwrap();
    park(&purgatory, &["a"], MS);
    let key = |live: Live| event(&live)["purgatories"][0]["busiest"][0]["key"].clone();
    assert_eq!(key(Live::new().purgatory(&purgatory)), "\"a\"");
    assert_eq!(
        key(Live::new().purgatory_with(&purgatory, Display::fmt)),
        "a"
    );
    let show = |key: &&str, f: &mut fmt::Formatter<'_>| write!(f, "order {key}");
    assert_eq!(key(Live::new().purgatory_with(&purgatory, show)), "order a");
    // The keys of a form, too.
    let ends = Watermarks::new("log ends").unwrap();
    let wait = ends.wait_for(&"a", 7, Duration::from_secs(3600));
    let shown = |live: Live| {
        let event = event(&live);
        assert_eq!(event["purgatories"][0]["name"], "log ends");
        event["purgatories"][0]["oldest"][0]["keys"][0].clone()
    };
    let waits = ends.waits();
    assert_eq!(shown(Live::new().waits(&waits)), "\"a\"");
    assert_eq!(shown(Live::new().waits_with(&waits, Display::fmt)), "a");
    drop(wait);
}

#[test]
fn bound_and_labels_are_shown() {
    let timer = ManualTimer::new();
    let builder = Purgatory::builder("orders").timer(&timer).max_parked(7);
    let purgatory: Purgatory<&str> = builder.build().unwrap();
    let replies: Replies<u32, u32> = Replies::builder("replies").max_parked(9).build().unwrap();
    let without: Purgatory<&str> = Purgatory::on(&timer, "unbounded").unwrap();
    let watches = Watches::keys(&["a"]).labelled("fetch");
    let parked = purgatory.try_complete_else_watch(when(|| false, drop), watches, MS);
    assert!(parked.unwrap().is_some());

    let live = Live::new().purgatory(&purgatory).waits(&replies.waits());
    let event = event(&live.purgatory(&without));
    let [bounded, of_a_form, unbounded] = [0, 1, 2].map(|at| &event["purgatories"][at]);
    assert_eq!(bounded["max_parked"], 7);
    assert_eq!(of_a_form["max_parked"], 9);
    assert_eq!(unbounded["max_parked"], Value::Null);
    assert_eq!(bounded["labels"], json!([{"label": "fetch", "parked": 1}]));
    assert_eq!(bounded["oldest"][0]["label"], "fetch");
    assert_eq!(bounded["lagging"], Value::Null);
}

#[test]
fn members_that_lag_are_named() {
    let timer = ManualTimer::new();
    let logs: ReplicaSets<&str, u32> = ReplicaSets::on(&timer, "produce").unwrap();
    let live = Live::new().replica_sets_with(&logs, Display::fmt);
    for group in ["orders", "caught up", "quiet"] {
        let members = [(1, 42), (2, 40), (3, 41)];
        logs.set(&group, 0, members, 42, Rule::all()).unwrap();
    }
    let held_back = logs
        .in_epoch(&"orders", 0)
        .wait_for(42, Duration::from_secs(3600));
    let above = logs
        .in_epoch(&"caught up", 0)
        .wait_for(43, Duration::from_secs(3600));
    for member in [2, 3] {
        logs.in_epoch(&"caught up", 0).report(&member, 42).unwrap();
    }

    // Groups that writes wait for: the lagging members, the furthest behind first, and for how
    // long.
    let lagging = || event(&live)["purgatories"][0]["lagging"].clone();
    let orders = |lags: f64| {
        json!([{
            "group": "orders",
            "watermark": "40",
            "members": [
                {"member": "2", "value": "40", "lags": lags},
                {"member": "3", "value": "41", "lags": lags},
            ],
            "members_left_out": 0,
        }])
    };
    assert_eq!(lagging(), orders(0.0));
    timer.advance(Duration::from_secs(5));
    assert_eq!(lagging(), orders(5.0));
    for member in [2, 3] {
        logs.in_epoch(&"orders", 0).report(&member, 42).unwrap();
    }
    assert_eq!(lagging(), json!([]));
    drop((held_back, above));
}

#[test]
fn list_of_lagging_members_is_limited() {
    let timer = ManualTimer::new();
    let logs: ReplicaSets<&str, u64> = ReplicaSets::on(&timer, "produce").unwrap();
    logs.set(&"orders", 0, (0..10).map(|at| (at, at)), 9, Rule::all())
        .unwrap();
    let wait = logs.in_epoch(&"orders", 0).wait_for(9, MS);
    let event = event(&Live::new().replica_sets(&logs));
    let group = &event["purgatories"][0]["lagging"][0];
    assert_eq!(group["group"], "\"orders\"");
    assert_eq!(group["members"].as_array().unwrap().len(), 6);
    assert_eq!(group["members_left_out"], 3);
    drop(wait);
}

/// After a page was looked at, nothing remains that would wake the timer.
#[test]
fn history_schedules_nothing() {
    let timer = SystemTimer::new().unwrap();
    let purgatory: Purgatory<&str> = Purgatory::on(&timer, "orders").unwrap();
    let live = Live::new().purgatory(&purgatory).timer(&timer);
    live.record();
    live.record();
    let seen = event(&live);
    assert_eq!(seen["timers"][0]["stats"]["pending"], 0);
    assert_eq!(timer.stats().fired, 0);
    let points = seen["purgatories"][0]["minute"]["points"].as_array();
    assert!(points.unwrap().len() >= 2, "{seen}");
}

#[test]
fn lists_of_keys_and_operations_are_limited() {
    let timer = ManualTimer::new();
    let purgatory = Purgatory::on(&timer, "orders").unwrap();
    let keys = "a b c d e f g h i j k l m".split(' ').collect::<Vec<_>>();
    for _ in 0..20 {
        park(&purgatory, &keys, MS);
    }

    // At most ten of each by default, and six keys of an operation.
    let seen = |live: &Live| event(live)["purgatories"][0].clone();
    let lengths = |seen: &Value| ["busiest", "oldest"].map(|of| seen[of].as_array().unwrap().len());
    let live = Live::new().purgatory(&purgatory);
    assert_eq!(lengths(&seen(&live)), [10, 10]);
    let live = live.limit(2);
    assert_eq!(lengths(&seen(&live)), [2, 2]);
    let oldest = &seen(&live)["oldest"][0];
    assert_eq!(oldest["keys"].as_array().unwrap().len(), 6);
    assert_eq!(oldest["keys_left_out"], 7);
}

#[test]
fn timers_are_shown_in_their_order() {
    let timer = SystemTimer::builder().name("orders").build().unwrap();
    let purgatory = Purgatory::on(&timer, "orders").unwrap();
    let other = SystemTimer::builder().name("other").build().unwrap();
    let id = other.schedule(Duration::from_secs(3600), || ()).unwrap();
    assert!(other.cancel(id));
    park(&purgatory, &["a"], Duration::from_secs(3600));

    let event = event(
        &Live::new()
            .purgatory(&purgatory)
            .timer(&timer)
            .timer(&other),
    );
    let [own, shared] = &event["timers"].as_array().unwrap()[..] else {
        panic!("{event}")
    };
    assert_eq!(own["name"], "orders");
    assert_eq!(shared["name"], "other");
    assert_eq!(own["tick_s"], 0.001);
    assert_eq!(own["stats"]["pending"], 1);
    assert_eq!(shared["stats"]["cancelled"], 1);
    assert!(own["now_s"].as_f64().unwrap() < 3600.0);
    assert_eq!(event["purgatories"].as_array().unwrap().len(), 1);
}

#[test]
fn purgatory_that_is_shut_down_is_still_shown() {
    let timer = SystemTimer::new().unwrap();
    let purgatory = Purgatory::on(&timer, "orders").unwrap();
    park(&purgatory, &["a"], Duration::from_secs(3600));
    let live = Live::new().purgatory(&purgatory).timer(&timer);
    purgatory.shutdown(std::time::Duration::from_secs(5));
    drop(purgatory);
    let event = event(&live);
    assert_eq!(event["purgatories"][0]["stats"]["cancelled_by_shutdown"], 1);
    assert_eq!(event["timers"][0]["stats"]["pending"], 0);
}

#[test]
fn page_asks_no_host_but_its_server() {
    let page = Live::page();
    // The page names no other host, and makes no code from text.
    let words = "http: https: //cdn src= @import url( innerHTML outerHTML eval(";
    for word in words.split(' ') {
        assert!(!page.contains(word), "{word} is in the page");
    }
    assert!(page.contains("/events"));

    // The policy names the hash of the one script and of the one style.
    for tag in ["<script", "<style"] {
        let count = page.matches(tag).count();
        assert_eq!(count, 1, "one {tag}>, named by the policy");
    }
}

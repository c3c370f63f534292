//! Groups under a clock turned by hand.

use std::{thread, time::Duration};

use bytes::Bytes;
use kafka_protocol::messages::{
    ApiKey, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
    SyncGroupRequest, SyncGroupResponse,
    join_group_request::JoinGroupRequestProtocol,
    offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
    offset_fetch_request::OffsetFetchRequestTopic,
    sync_group_request::SyncGroupRequestAssignment,
};

use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};
use timer_core::SystemTimer;

use crate::{
    api::Client,
    pipeline::Answer,
    replica_manager::ReplicaManager,
    tests::{
        Fixture, answered, args, examples::each_version, handle, request, tcp::wait_until,
        topic_name,
    },
};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);
const INITIAL_DELAY: Duration = Duration::from_secs(3);

const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const ILLEGAL_GENERATION: i16 = 22;
const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
const INVALID_GROUP_ID: i16 = 24;
const UNKNOWN_MEMBER_ID: i16 = 25;
const INVALID_SESSION_TIMEOUT: i16 = 26;
const REBALANCE_IN_PROGRESS: i16 = 27;
const GROUP_MAX_SIZE_REACHED: i16 = 81;

fn join_request(member: &str, protocols: &[&str]) -> JoinGroupRequest {
    let protocol = |name: &&str| {
        let protocol = JoinGroupRequestProtocol::default().with_name(topic_name(name).0);
        protocol.with_metadata(Bytes::from_static(b"topics"))
    };
    JoinGroupRequest::default()
        .with_group_id(topic_name("g").0.into())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(topic_name(member).0)
        .with_protocol_type("consumer".into())
        .with_protocols(protocols.iter().map(protocol).collect())
}

fn sync_request(member: &str, generation: i32, parts: &[(&str, &'static str)]) -> SyncGroupRequest {
    let part = |(member, part): &(&str, &'static str)| {
        let assigned = SyncGroupRequestAssignment::default();
        assigned.with_member_id(topic_name(member).0).with_assignment((*part).into())
    };
    SyncGroupRequest::default()
        .with_group_id(topic_name("g").0.into())
        .with_generation_id(generation)
        .with_member_id(topic_name(member).0)
        .with_assignments(parts.iter().map(part).collect())
}

fn heartbeat_request(member: &str, generation: i32) -> HeartbeatRequest {
    HeartbeatRequest::default()
        .with_group_id(topic_name("g").0.into())
        .with_generation_id(generation)
        .with_member_id(topic_name(member).0)
}

fn leave_request(member: &str) -> LeaveGroupRequest {
    let request = LeaveGroupRequest::default().with_group_id(topic_name("g").0.into());
    request.with_member_id(topic_name(member).0)
}

fn commit_request(
    member: &str,
    generation: i32,
    partition: i32,
    offset: i64,
) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(partition)
        .with_committed_offset(offset)
        .with_committed_metadata(Some("note".into()));
    let topic = OffsetCommitRequestTopic::default().with_name(topic_name("t"));
    OffsetCommitRequest::default()
        .with_group_id(topic_name("g").0.into())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(topic_name(member).0)
        .with_topics(vec![topic.with_partitions(vec![partition])])
}

fn fetch_request(partitions: Vec<i32>) -> OffsetFetchRequest {
    let topic = OffsetFetchRequestTopic::default().with_name(topic_name("t"));
    let request = OffsetFetchRequest::default().with_group_id(topic_name("g").0.into());
    request.with_topics(Some(vec![topic.with_partition_indexes(partitions)]))
}

fn joined(client: &Client) -> Option<JoinGroupResponse> {
    answered(client, 3)
}

/// Error code and assignment.
fn synced(client: &Client) -> Option<(i16, Bytes)> {
    let response: SyncGroupResponse = answered(client, 2)?;
    Some((response.error_code, response.assignment))
}

fn assigned(part: &'static str) -> Option<(i16, Bytes)> {
    Some((0, Bytes::from_static(part.as_bytes())))
}

impl Fixture {
    fn join(&self, member: &str) -> Client {
        self.ask(ApiKey::JoinGroup, 3, &join_request(member, &["range"]))
    }

    /// The error code of a join that is answered at once.
    fn refused(&self, request: &JoinGroupRequest) -> i16 {
        joined(&self.ask(ApiKey::JoinGroup, 3, request)).unwrap().error_code
    }

    /// Of a member that joins for the first time. It is to join again with it, since its answer is
    /// not looked at: as a client that was cut off, and now knows its id.
    fn new_member_id(&self) -> String {
        let ids = || {
            let groups = self.manager.groups.groups.lock();
            let group = groups.get("g").map(|group| group.state.lock());
            group.map_or(Vec::new(), |state| state.members.keys().cloned().collect())
        };
        let known = ids();
        drop(self.join(""));
        let mut new = ids().into_iter().filter(|id| !known.contains(id));
        new.next().expect("a new member").to_string()
    }

    fn sync(&self, member: &str, generation: i32, parts: &[(&str, &'static str)]) -> Client {
        self.ask(ApiKey::SyncGroup, 2, &sync_request(member, generation, parts))
    }

    fn heartbeat(&self, member: &str, generation: i32) -> i16 {
        let client = self.ask(ApiKey::Heartbeat, 2, &heartbeat_request(member, generation));
        answered::<HeartbeatResponse>(&client, 2).unwrap().error_code
    }

    fn leave(&self, member: &str) -> i16 {
        let client = self.ask(ApiKey::LeaveGroup, 2, &leave_request(member));
        answered::<LeaveGroupResponse>(&client, 2).unwrap().error_code
    }

    /// Of partition `partition` of topic `t`.
    fn commit(&self, member: &str, generation: i32, partition: i32, offset: i64) -> i16 {
        let request = commit_request(member, generation, partition, offset);
        let client = self.ask(ApiKey::OffsetCommit, 4, &request);
        let response: OffsetCommitResponse = answered(&client, 4).unwrap();
        response.topics[0].partitions[0].error_code
    }

    /// Partition and offset.
    fn committed(&self, partitions: Vec<i32>) -> Vec<(i32, i64)> {
        let client = self.ask(ApiKey::OffsetFetch, 1, &fetch_request(partitions));
        let response: OffsetFetchResponse = answered(&client, 1).unwrap();
        let partitions = response.topics.into_iter().flat_map(|topic| topic.partitions);
        partitions.map(|found| (found.partition_index, found.committed_offset)).collect()
    }

    fn parked(&self) -> (u64, u64) {
        let groups = &self.manager.groups;
        ((groups.rebalances.len() + groups.syncs.len()) as u64, groups.sessions.len() as u64)
    }

    /// A stable group of two in generation 1, the leader first.
    fn two_members(&self) -> [String; 2] {
        let ids = [self.new_member_id(), self.new_member_id()];
        let joins = ids.each_ref().map(|id| self.join(id));
        self.timer.advance(INITIAL_DELAY);
        let responses = joins.map(|join| joined(&join).unwrap());
        let leader = responses[0].leader.to_string();
        assert!(responses.iter().all(|response| response.generation_id == 1));
        let follower = ids.into_iter().find(|id| *id != leader).unwrap();
        let waits = self.sync(&follower, 1, &[]);
        let leads = self.sync(&leader, 1, &[(&leader, "a"), (&follower, "b")]);
        assert_eq!((synced(&leads), synced(&waits)), (assigned("a"), assigned("b")));
        [leader, follower]
    }

    /// Lets time pass while these send heartbeats, whose answers are of no interest.
    fn pass_with_heartbeats(&self, time: Duration, members: &[&str], generation: i32) {
        for _ in 0..time.as_secs() {
            self.timer.advance(SECOND);
            for member in members {
                self.heartbeat(member, generation);
            }
        }
    }
}

#[test]
fn two_members_join_the_leader_assigns_and_a_sync_before_it_waits() {
    let broker = Fixture::new(&[]);
    let ids = [broker.new_member_id(), broker.new_member_id()];
    let joins = ids.each_ref().map(|id| broker.join(id));
    broker.timer.advance(INITIAL_DELAY - MILLISECOND);
    assert!(joins.iter().all(|join| joined(join).is_none()), "more members may come");
    broker.timer.advance(MILLISECOND);
    let responses = joins.map(|join| joined(&join).unwrap());
    for (response, id) in responses.iter().zip(&ids) {
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!(
            (&*response.member_id, response.protocol_name.as_deref()),
            (&**id, Some("range"))
        );
        let leads = response.leader == response.member_id;
        assert_eq!(response.members.len(), if leads { 2 } else { 0 }, "the leader knows them");
    }
    let leader = responses[0].leader.to_string();
    let follower = ids.iter().find(|id| **id != leader).unwrap();

    let waits = broker.sync(follower, 1, &[]);
    assert_eq!((synced(&waits), broker.parked().0), (None, 1));
    assert_eq!(broker.commit(follower, 1, 0, 1), REBALANCE_IN_PROGRESS);
    let leads = broker.sync(&leader, 1, &[(follower, "b")]);
    assert_eq!((synced(&leads), synced(&waits)), (assigned(""), assigned("b")));
    assert_eq!(synced(&broker.sync(follower, 1, &[])), assigned("b"), "asked again");
    assert_eq!(broker.heartbeat(follower, 1), 0);
    assert_eq!(broker.parked(), (0, 2));
}

#[test]
fn a_third_member_makes_the_others_join_again() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    assert_eq!(joined(&broker.join(&follower)).unwrap().generation_id, 1, "a follower may look");
    let third = broker.new_member_id();
    let joins = [broker.join(&third)];
    assert_eq!(broker.heartbeat(&leader, 1), REBALANCE_IN_PROGRESS);
    assert_eq!(synced(&broker.sync(&follower, 1, &[])).unwrap().0, REBALANCE_IN_PROGRESS);
    assert_eq!(broker.commit(&follower, 1, 0, 5), 0, "before it joins again");
    let twice = broker.join(&leader);
    let joins = [&joins[0], &broker.join(&leader), &broker.join(&follower)];
    assert!(matches!(twice.pipeline.next(), Some((Answer::Lost, _))));
    let responses = joins.map(|join| joined(join).expect("the last one has joined"));
    for response in &responses {
        assert_eq!((response.generation_id, &*response.leader), (2, &*leader));
    }
    assert_eq!(responses[1].members.len(), 3);
    assert_eq!(joined(&broker.join(&third)).unwrap().generation_id, 2, "its answer was lost");
    assert_eq!(broker.commit(&follower, 1, 0, 6), ILLEGAL_GENERATION);
    assert_eq!(broker.heartbeat(&follower, 1), ILLEGAL_GENERATION);
}

#[test]
fn a_leader_that_joins_again_starts_a_rebalance_and_a_changed_subscription_too() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    let again = broker.join(&leader);
    assert_eq!(broker.heartbeat(&follower, 1), REBALANCE_IN_PROGRESS);
    broker.join(&follower);
    assert_eq!(joined(&again).unwrap().generation_id, 2);
    assert_eq!(synced(&broker.sync(&leader, 2, &[])), assigned(""));
    let changed = join_request(&follower, &["sticky", "range"]);
    broker.ask(ApiKey::JoinGroup, 3, &changed);
    assert_eq!(broker.heartbeat(&leader, 2), REBALANCE_IN_PROGRESS);
}

#[test]
fn who_does_not_join_again_in_time_is_no_member_any_more() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    let third = broker.new_member_id();
    let joins = [broker.join(&third), broker.join(&follower)];
    broker.pass_with_heartbeats(REBALANCE - SECOND, &[&leader], 1);
    assert!(joins.iter().all(|join| joined(join).is_none()), "the leader is waited for");
    broker.timer.advance(SECOND);
    let responses = joins.map(|join| joined(&join).unwrap());
    assert!(responses.iter().all(|response| response.generation_id == 2));
    assert!(*responses[0].leader != *leader, "another one leads");
    assert_eq!(responses.iter().map(|response| response.members.len()).sum::<usize>(), 2);
    assert_eq!(broker.heartbeat(&leader, 1), UNKNOWN_MEMBER_ID);
    assert_eq!(broker.parked(), (0, 2), "two sessions, and nothing waits");
}

#[test]
fn a_silent_member_is_expired_and_its_partitions_move() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    broker.pass_with_heartbeats(SESSION - SECOND, &[&follower], 1);
    assert_eq!(broker.heartbeat(&follower, 1), 0);
    broker.timer.advance(SECOND);
    assert_eq!(broker.heartbeat(&follower, 1), REBALANCE_IN_PROGRESS);
    assert_eq!(broker.heartbeat(&leader, 1), UNKNOWN_MEMBER_ID);
    assert_eq!(broker.refused(&join_request(&leader, &["range"])), UNKNOWN_MEMBER_ID);
    let response = joined(&broker.join(&follower)).expect("it is alone");
    assert_eq!((response.generation_id, response.members.len()), (2, 1));
    let sync = broker.sync(&follower, 2, &[(&follower, "ab")]);
    assert_eq!(synced(&sync), assigned("ab"));
}

#[test]
fn heartbeats_and_commits_keep_a_session_and_waiting_stops_it() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    broker.pass_with_heartbeats(3 * SESSION, &[&leader, &follower], 1);
    broker.timer.advance(SESSION - MILLISECOND);
    assert_eq!((broker.commit(&leader, 1, 0, 1), broker.heartbeat(&follower, 1)), (0, 0));
    let join = broker.join(&leader);
    broker.timer.advance(SECOND);
    assert_eq!(broker.heartbeat(&leader, 1), REBALANCE_IN_PROGRESS, "does not start the session");
    broker.pass_with_heartbeats(2 * SESSION, &[&follower], 1);
    assert!(joined(&join).is_none());
    broker.join(&follower);
    assert_eq!(joined(&join).unwrap().generation_id, 2);
    broker.sync(&follower, 2, &[]);
    broker.pass_with_heartbeats(2 * SESSION, &[&leader], 2);
    assert_eq!(broker.heartbeat(&follower, 2), 0, "it waits for the leader's sync");
    broker.sync(&leader, 2, &[]);
    broker.pass_with_heartbeats(SESSION, &[&leader], 2);
    assert_eq!(broker.heartbeat(&follower, 2), UNKNOWN_MEMBER_ID);
}

#[test]
fn a_leader_that_never_assigns_is_given_up_and_one_that_falls_silent_too() {
    for heartbeats in [true, false] {
        let broker = Fixture::new(&[]);
        let [leader, follower] = broker.two_members();
        broker.join(&leader);
        broker.join(&follower);
        let waits = broker.sync(&follower, 2, &[]);
        let (beating, time) =
            if heartbeats { (vec![&*leader], REBALANCE) } else { (vec![], SESSION) };
        broker.pass_with_heartbeats(time - SECOND, &beating, 2);
        broker.timer.advance(SECOND - MILLISECOND);
        assert_eq!(synced(&waits), None);
        broker.timer.advance(MILLISECOND);
        assert_eq!(synced(&waits), Some((REBALANCE_IN_PROGRESS, Bytes::new())));
        assert_eq!(broker.heartbeat(&leader, 2), UNKNOWN_MEMBER_ID);
        let response = joined(&broker.join(&follower)).expect("it is alone");
        assert_eq!((response.generation_id, &*response.leader), (3, &*follower));
    }
}

#[test]
fn who_leaves_starts_a_rebalance_and_the_last_one_takes_the_group_along() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    assert_eq!(broker.leave("stranger"), UNKNOWN_MEMBER_ID);
    assert_eq!((broker.leave(&leader), broker.leave(&leader)), (0, UNKNOWN_MEMBER_ID));
    assert_eq!(broker.heartbeat(&follower, 1), REBALANCE_IN_PROGRESS);
    let join = broker.join(&follower);
    assert_eq!(joined(&join).unwrap().generation_id, 2);
    broker.sync(&follower, 2, &[]);
    let third = broker.new_member_id();
    assert_eq!(broker.heartbeat(&follower, 2), REBALANCE_IN_PROGRESS);
    assert_eq!(broker.leave(&third), 0);
    assert_eq!(joined(&broker.join(&follower)).unwrap().generation_id, 3);
    assert_eq!(broker.leave(&follower), 0);
    assert_eq!((broker.parked(), broker.manager.groups.groups.lock().len()), ((0, 0), 0));
    assert_eq!(broker.leave(&follower), UNKNOWN_MEMBER_ID);

    let id = broker.new_member_id();
    let waits = broker.join(&id);
    assert_eq!(broker.leave(&id), 0);
    assert_eq!(joined(&waits).unwrap().error_code, UNKNOWN_MEMBER_ID);
}

#[test]
fn a_member_whose_client_is_gone_before_it_knows_its_id_is_forgotten() {
    let broker = Fixture::new(&[]);
    // Version 0 has no rebalance timeout.
    let first = join_request("", &["range"]).with_rebalance_timeout_ms(-1);
    let join = broker.ask(ApiKey::JoinGroup, 0, &first);
    assert_eq!((broker.parked(), broker.manager.groups.groups.lock().len()), ((1, 1), 1));
    broker.timer.advance(INITIAL_DELAY);
    let response: JoinGroupResponse = answered(&join, 0).unwrap();
    assert_eq!(response.members.len(), 1);
    broker.timer.advance(SESSION);
    assert_eq!((broker.parked(), broker.manager.groups.groups.lock().len()), ((0, 0), 0));
    let again = join_request(&response.member_id, &["range"]);
    assert_eq!(broker.refused(&again), UNKNOWN_MEMBER_ID);
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let bounds = ["--max-group-members", "2", "--max-groups", "1"];
    let broker = Fixture::new(&bounds);
    let request = join_request("", &["range"]);
    for session_timeout_ms in [i32::MIN, 0, 5_999, 1_800_001] {
        let request = request.clone().with_session_timeout_ms(session_timeout_ms);
        assert_eq!(broker.refused(&request), INVALID_SESSION_TIMEOUT);
    }
    assert_eq!(broker.refused(&join_request("", &[])), INCONSISTENT_GROUP_PROTOCOL);
    let untyped = request.clone().with_protocol_type("".into());
    assert_eq!(broker.refused(&untyped), INCONSISTENT_GROUP_PROTOCOL);
    let large = "x".repeat(20_000);
    assert_eq!(broker.refused(&join_request("", &[&*large; 4])), -1);
    assert_eq!(broker.refused(&join_request("", &[""; 17])), -1);
    assert_eq!(
        broker.refused(&request.clone().with_group_id(topic_name("").0.into())),
        INVALID_GROUP_ID
    );
    assert_eq!(broker.refused(&join_request("stranger", &["range"])), UNKNOWN_MEMBER_ID);
    assert_eq!((broker.heartbeat("stranger", 0), broker.commit("stranger", 0, 0, 0)), (25, 25));
    assert_eq!(broker.manager.groups.groups.lock().len(), 0, "nothing was made");

    let [leader, _] = broker.two_members();
    assert_eq!(broker.refused(&request), GROUP_MAX_SIZE_REACHED);
    assert_eq!(broker.refused(&join_request("stranger", &["range"])), UNKNOWN_MEMBER_ID);
    let other = request.clone().with_group_id(topic_name("other").0.into());
    assert_eq!(broker.refused(&other), COORDINATOR_NOT_AVAILABLE);
    let incompatible = join_request(&leader, &["sticky"]);
    assert_eq!(broker.refused(&incompatible), INCONSISTENT_GROUP_PROTOCOL);
    let worker = join_request(&leader, &["range"]).with_protocol_type("connect".into());
    assert_eq!(broker.refused(&worker), INCONSISTENT_GROUP_PROTOCOL);
    assert_eq!(synced(&broker.sync(&leader, 9, &[])).unwrap().0, ILLEGAL_GENERATION);
    assert_eq!(synced(&broker.sync("stranger", 1, &[])).unwrap().0, UNKNOWN_MEMBER_ID);
    assert_eq!(broker.heartbeat("stranger", 1), UNKNOWN_MEMBER_ID);
}

#[test]
fn the_leaders_first_protocol_that_all_know_is_taken() {
    let broker = Fixture::new(&[]);
    let protocols = [["new", "b", "a"], ["a", "b", "old"]];
    let joins = protocols.map(|of| broker.ask(ApiKey::JoinGroup, 3, &join_request("", &of)));
    broker.timer.advance(INITIAL_DELAY);
    let response = joined(&joins[0]).unwrap();
    let expected = if response.leader == response.member_id { "b" } else { "a" };
    assert_eq!(response.protocol_name.as_deref(), Some(expected));
}

#[test]
fn offsets_outlive_their_members_and_are_committed_by_who_may() {
    let broker = Fixture::new(&[]);
    assert_eq!(broker.committed(vec![0]), [(0, -1)]);
    assert_eq!(broker.commit("", -1, 99, 7), 3);
    assert_eq!(broker.manager.groups.groups.lock().len(), 0, "nothing was made");
    let [leader, follower] = broker.two_members();
    assert_eq!((broker.commit(&leader, 1, 0, 7), broker.commit(&follower, 1, 2, 9)), (0, 0));
    assert_eq!(broker.commit(&leader, 1, 99, 7), 3, "there is no such partition");
    assert_eq!(broker.commit(&leader, 2, 0, 8), ILLEGAL_GENERATION);
    assert_eq!(broker.commit("", -1, 0, 8), UNKNOWN_MEMBER_ID);
    broker.leave(&leader);
    broker.leave(&follower);
    assert_eq!((broker.manager.groups.groups.lock().len(), broker.parked()), (1, (0, 0)));
    assert_eq!(broker.commit("", -1, 1, 8), 0, "from outside, with no members");
    assert_eq!(broker.committed(vec![0, 1, 2, 9]), [(0, 7), (1, 8), (2, 9), (9, -1)]);
}

#[test]
fn a_member_goes_through_its_life_at_every_version() {
    for (key, version) in each_version().filter(|(key, _)| *key == ApiKey::JoinGroup) {
        let broker = Fixture::new(&[]);
        let join = broker.ask(key, version, &join_request("", &["range"]));
        broker.timer.advance(INITIAL_DELAY);
        let response: JoinGroupResponse = answered(&join, version).unwrap();
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!(response.members[0].metadata, "topics");
        let id = &*response.member_id;
        for (key, version) in each_version() {
            match key {
                ApiKey::SyncGroup => {
                    let sync = broker.ask(key, version, &sync_request(id, 1, &[(id, "part")]));
                    let response: SyncGroupResponse = answered(&sync, version).unwrap();
                    assert_eq!((response.error_code, &*response.assignment), (0, &b"part"[..]));
                }
                ApiKey::Heartbeat => {
                    let beat = broker.ask(key, version, &heartbeat_request(id, 1));
                    let response: HeartbeatResponse = answered(&beat, version).unwrap();
                    assert_eq!(response.error_code, 0);
                }
                ApiKey::OffsetCommit => {
                    let commit = broker.ask(key, version, &commit_request(id, 1, 2, 7));
                    let response: OffsetCommitResponse = answered(&commit, version).unwrap();
                    assert_eq!(response.topics[0].partitions[0].error_code, 0);
                }
                ApiKey::OffsetFetch => {
                    let fetch = broker.ask(key, version, &fetch_request(vec![2]));
                    let response: OffsetFetchResponse = answered(&fetch, version).unwrap();
                    let found = &response.topics[0].partitions[0];
                    assert_eq!((found.error_code, found.committed_offset), (0, 7));
                    assert_eq!(found.metadata.as_deref(), Some("note"));
                }
                _ => {}
            }
        }
        let leave = broker.ask(ApiKey::LeaveGroup, version.min(2), &leave_request(id));
        let response: LeaveGroupResponse = answered(&leave, version.min(2)).unwrap();
        assert_eq!(response.error_code, 0);
    }
}

#[test]
fn there_is_no_coordinator_of_transactions() {
    let broker = Fixture::new(&[]);
    for (key, version) in each_version().filter(|(key, _)| *key == ApiKey::FindCoordinator) {
        let key_type = i8::from(version >= 1);
        let request = FindCoordinatorRequest::default().with_key_type(key_type);
        let response: FindCoordinatorResponse =
            answered(&broker.ask(key, version, &request), version).unwrap();
        assert_eq!(response.error_code, if key_type == 1 { 53 } else { 0 });
    }
}

#[test]
fn a_shutdown_answers_whoever_waits() {
    let broker = Fixture::new(&[]);
    let [leader, follower] = broker.two_members();
    broker.join(&leader);
    broker.join(&follower);
    let waits = broker.sync(&follower, 2, &[]);
    broker.manager.shutdown();
    assert_eq!(synced(&waits).unwrap().0, UNKNOWN_MEMBER_ID);
    assert_eq!(broker.refused(&join_request("", &["range"])), NOT_COORDINATOR);
    assert_eq!(broker.refused(&join_request(&follower, &["range"])), UNKNOWN_MEMBER_ID);

    let broker = Fixture::new(&[]);
    let join = broker.join(&broker.new_member_id());
    broker.manager.shutdown();
    assert_eq!(joined(&join).unwrap().error_code, 0);
}

/// Joins, has its assignment and leaves, in its own thread; the answers are waited for.
fn live(manager: &ReplicaManager, group: &'static str) {
    let client = crate::fuzz::client(manager, 0);
    let mut member = String::new();
    loop {
        let join = join_request(&member, &["range"]).with_group_id(topic_name(group).0.into());
        let response: JoinGroupResponse =
            wait_for_answer(manager, &client, ApiKey::JoinGroup, 3, &join);
        match response.error_code {
            0 => member = response.member_id.to_string(),
            COORDINATOR_NOT_AVAILABLE | UNKNOWN_MEMBER_ID => continue, // the group has just gone
            other => panic!("{other}"),
        }
        let parts: Vec<_> = response.members.iter().map(|one| (&*one.member_id, "part")).collect();
        let sync = sync_request(&member, response.generation_id, &parts);
        let sync = sync.with_group_id(topic_name(group).0.into());
        let response: SyncGroupResponse =
            wait_for_answer(manager, &client, ApiKey::SyncGroup, 2, &sync);
        match response.error_code {
            0 => break assert_eq!(response.assignment, "part"),
            REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION => {}
            other => panic!("{other}"),
        }
    }
    let leave = leave_request(&member).with_group_id(topic_name(group).0.into());
    let response: LeaveGroupResponse =
        wait_for_answer(manager, &client, ApiKey::LeaveGroup, 2, &leave);
    assert_eq!(response.error_code, 0);
}

fn wait_for_answer<T: Decodable + HeaderVersion>(
    manager: &ReplicaManager,
    client: &Client,
    key: ApiKey,
    version: i16,
    body: &impl Encodable,
) -> T {
    handle(manager, client, request(key, version, body)).unwrap();
    wait_until(|| client.pipeline.is_ready());
    answered(client, version).expect("an answer")
}

#[test]
fn members_that_come_and_go_in_many_threads_all_have_their_answers() {
    let timer = SystemTimer::builder().name("groups").build().unwrap();
    let args = args(&["--group-initial-rebalance-delay", "2ms"]);
    let manager = ReplicaManager::new(&args, &timer).unwrap();
    thread::scope(|scope| {
        for number in 0..8 {
            let manager = &manager;
            scope.spawn(move || (0..100).for_each(|_| live(manager, ["g", "h"][number % 2])));
        }
    });
    assert_eq!(manager.groups.groups.lock().len(), 0, "the last one takes the group along");
    let groups = &manager.groups;
    let stats = [groups.rebalances.stats(), groups.syncs.stats(), groups.sessions.stats()];
    assert_eq!(stats.map(|stats| (stats.parked, stats.panics)), [(0, 0); 3]);
    assert_eq!((stats[2].completed, stats[2].expired), (800, 0));
}

//! Groups under a clock turned by hand.

use std::{thread, time::Duration};

use bytes::Bytes;
use kafka_protocol::ResponseError::{self, *};
use kafka_protocol::messages::{ApiKey, FindCoordinatorRequest, JoinGroupRequest};
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupResponse};
use kafka_protocol::protocol::Request;
use timer_core::SystemTimer;

use crate::api::OrError;
use crate::tests::{Asked, Fixture, args, ask, examples::*, latest, tcp::wait_until};
use crate::{pipeline::Answer, replica_manager::ReplicaManager};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);
const SESSION: Duration = Duration::from_secs(10);
const REBALANCE: Duration = Duration::from_secs(60);
const INITIAL_DELAY: Duration = Duration::from_secs(3);

/// What an error code says.
fn told(code: i16) -> OrError<()> {
    ResponseError::try_from_code(code).map_or(Ok(()), Err)
}

/// The assignment.
fn synced(sync: &Asked<SyncGroupResponse>) -> Option<OrError<Bytes>> {
    let response = sync.answer()?;
    Some(told(response.error_code).map(|()| response.assignment))
}

fn assigned(part: &'static str) -> Option<OrError<Bytes>> {
    Some(Ok(part.into()))
}

impl Fixture {
    fn join(&self, member: &str) -> Asked<JoinGroupResponse> {
        self.ask(&join(member, &["range"]))
    }

    /// Of a join that is answered at once.
    fn refused(&self, request: &JoinGroupRequest) -> ResponseError {
        told(self.ask(request).answer().unwrap().error_code).unwrap_err()
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

    fn sync(&self, member: &str, generation: i32, parts: &[Part]) -> Asked<SyncGroupResponse> {
        self.ask(&sync(member, generation, parts))
    }

    fn heartbeat(&self, member: &str, generation: i32) -> OrError<()> {
        told(self.ask(&heartbeat(member, generation)).answer().unwrap().error_code)
    }

    fn leave(&self, member: &str) -> OrError<()> {
        told(self.ask(&leave(member)).answer().unwrap().error_code)
    }

    /// Of partition `partition` of topic `t`.
    fn commit(&self, member: &str, generation: i32, partition: i32, offset: i64) -> OrError<()> {
        let request = commit(member, generation, &[(partition, offset, "note")]);
        told(self.ask(&request).answer().unwrap().topics[0].partitions[0].error_code)
    }

    /// Partition and offset.
    fn committed(&self, partitions: &[i32]) -> Vec<(i32, i64)> {
        let topics = self.ask(&fetch_offsets(partitions)).answer().unwrap().topics;
        let found = topics[0].partitions.iter();
        found.map(|found| (found.partition_index, found.committed_offset)).collect()
    }

    fn groups(&self) -> usize {
        self.manager.groups.groups.lock().len()
    }

    /// Members that wait or rebalances that do, and sessions.
    fn parked(&self) -> (usize, usize) {
        let groups = &self.manager.groups;
        (groups.rebalances.len() + groups.syncs.len(), groups.sessions.len())
    }

    /// A stable group of two in generation 1, the leader first.
    fn two_members(&self) -> [String; 2] {
        let ids = [self.new_member_id(), self.new_member_id()];
        let joins = ids.each_ref().map(|id| self.join(id));
        self.timer.advance(INITIAL_DELAY - MILLISECOND);
        assert!(joins.iter().all(|join| join.answer().is_none()), "more members may come");
        self.timer.advance(MILLISECOND);
        let responses = joins.map(|join| join.answer().unwrap());
        for (response, id) in responses.iter().zip(&ids) {
            assert_eq!((response.error_code, response.generation_id), (0, 1));
            assert_eq!(*response.member_id, **id);
            assert_eq!(response.protocol_name.as_deref(), Some("range"));
            let leads = response.leader == response.member_id;
            assert_eq!(response.members.len(), if leads { 2 } else { 0 }, "the leader knows them");
        }
        let leader = responses[0].leader.to_string();
        let follower = ids.into_iter().find(|id| *id != leader).unwrap();
        let waits = self.sync(&follower, 1, &[]);
        assert_eq!((synced(&waits), self.parked()), (None, (1, 2)), "for the leader's");
        assert_eq!(self.commit(&follower, 1, 0, 1), Err(RebalanceInProgress));
        let leads = self.sync(&leader, 1, &[(&leader, "a"), (&follower, "b")]);
        assert_eq!((synced(&leads), synced(&waits)), (assigned("a"), assigned("b")));
        [leader, follower]
    }

    /// Lets time pass while these send heartbeats, whose answers are of no interest.
    fn pass_with_heartbeats(&self, time: Duration, members: &[&str], generation: i32) {
        for _ in 0..time.as_secs() {
            self.timer.advance(SECOND);
            for member in members {
                let _ = self.heartbeat(member, generation);
            }
        }
    }
}

/// A broker with them.
fn stable() -> (Fixture, [String; 2]) {
    let broker = Fixture::new(&[]);
    let members = broker.two_members();
    (broker, members)
}

#[test]
fn two_members_join_the_leader_assigns_and_a_sync_before_it_waits() {
    let (broker, [leader, follower]) = stable();
    assert_eq!(synced(&broker.sync(&follower, 1, &[])), assigned("b"), "asked again");
    assert_eq!(broker.heartbeat(&follower, 1), Ok(()));
    assert_eq!(broker.parked(), (0, 2));
    broker.join(&leader);
    broker.join(&follower);
    assert_eq!(synced(&broker.sync(&leader, 2, &[(&follower, "b")])), assigned(""));
}

#[test]
fn a_third_member_makes_the_others_join_again() {
    let (broker, [leader, follower]) = stable();
    assert_eq!(broker.join(&follower).answer().unwrap().generation_id, 1, "a follower may look");
    let third = broker.new_member_id();
    let joins = [broker.join(&third)];
    assert_eq!(broker.heartbeat(&leader, 1), Err(RebalanceInProgress));
    assert_eq!(synced(&broker.sync(&follower, 1, &[])), Some(Err(RebalanceInProgress)));
    assert_eq!(broker.commit(&follower, 1, 0, 5), Ok(()), "before it joins again");
    let twice = broker.join(&leader);
    let joins = [&joins[0], &broker.join(&leader), &broker.join(&follower)];
    assert!(matches!(twice.client.pipeline.next(), Some((Answer::Lost, _))));
    let responses = joins.map(|join| join.answer().expect("the last one has joined"));
    for response in &responses {
        assert_eq!((response.generation_id, &*response.leader), (2, &*leader));
    }
    assert_eq!(responses[1].members.len(), 3);
    assert_eq!(broker.join(&third).answer().unwrap().generation_id, 2, "its answer was lost");
    assert_eq!(broker.commit(&follower, 1, 0, 6), Err(IllegalGeneration));
    assert_eq!(broker.heartbeat(&follower, 1), Err(IllegalGeneration));
}

#[test]
fn a_leader_that_joins_again_starts_a_rebalance_and_a_changed_subscription_too() {
    let (broker, [leader, follower]) = stable();
    let again = broker.join(&leader);
    assert_eq!(broker.heartbeat(&follower, 1), Err(RebalanceInProgress));
    broker.join(&follower);
    assert_eq!(again.answer().unwrap().generation_id, 2);
    assert_eq!(synced(&broker.sync(&leader, 2, &[])), assigned(""));
    broker.ask(&join(&follower, &["sticky", "range"]));
    assert_eq!(broker.heartbeat(&leader, 2), Err(RebalanceInProgress));
}

#[test]
fn who_does_not_join_again_in_time_is_no_member_any_more() {
    let (broker, [leader, follower]) = stable();
    let third = broker.new_member_id();
    let joins = [broker.join(&third), broker.join(&follower)];
    broker.pass_with_heartbeats(REBALANCE - SECOND, &[&leader], 1);
    assert!(joins.iter().all(|join| join.answer().is_none()), "the leader is waited for");
    broker.timer.advance(SECOND);
    let responses = joins.map(|join| join.answer().unwrap());
    assert!(responses.iter().all(|response| response.generation_id == 2));
    assert!(*responses[0].leader != *leader, "another one leads");
    assert_eq!(responses.iter().map(|response| response.members.len()).sum::<usize>(), 2);
    assert_eq!(broker.heartbeat(&leader, 1), Err(UnknownMemberId));
    assert_eq!(broker.parked(), (0, 2), "two sessions, and nothing waits");
}

#[test]
fn a_silent_member_is_expired_and_its_partitions_move() {
    let (broker, [leader, follower]) = stable();
    broker.pass_with_heartbeats(SESSION - SECOND, &[&follower], 1);
    assert_eq!(broker.heartbeat(&follower, 1), Ok(()));
    broker.timer.advance(SECOND);
    assert_eq!(broker.heartbeat(&follower, 1), Err(RebalanceInProgress));
    assert_eq!(broker.heartbeat(&leader, 1), Err(UnknownMemberId));
    assert_eq!(broker.refused(&join(&leader, &["range"])), UnknownMemberId);
    let response = broker.join(&follower).answer().expect("it is alone");
    assert_eq!((response.generation_id, response.members.len()), (2, 1));
    let sync = broker.sync(&follower, 2, &[(&follower, "ab")]);
    assert_eq!(synced(&sync), assigned("ab"));
}

#[test]
fn heartbeats_and_commits_keep_a_session_and_waiting_stops_it() {
    let (broker, [leader, follower]) = stable();
    broker.pass_with_heartbeats(3 * SESSION, &[&leader, &follower], 1);
    broker.timer.advance(SESSION - MILLISECOND);
    assert_eq!((broker.commit(&leader, 1, 0, 1), broker.heartbeat(&follower, 1)), (Ok(()), Ok(())));
    let join = broker.join(&leader);
    broker.timer.advance(SECOND);
    assert_eq!(
        broker.heartbeat(&leader, 1),
        Err(RebalanceInProgress),
        "does not start the session"
    );
    broker.pass_with_heartbeats(2 * SESSION, &[&follower], 1);
    assert!(join.answer().is_none());
    broker.join(&follower);
    assert_eq!(join.answer().unwrap().generation_id, 2);
    broker.sync(&follower, 2, &[]);
    broker.pass_with_heartbeats(2 * SESSION, &[&leader], 2);
    assert_eq!(broker.heartbeat(&follower, 2), Ok(()), "it waits for the leader's sync");
    broker.sync(&leader, 2, &[]);
    broker.pass_with_heartbeats(SESSION, &[&leader], 2);
    assert_eq!(broker.heartbeat(&follower, 2), Err(UnknownMemberId));
}

#[test]
fn a_leader_that_never_assigns_is_given_up_and_one_that_falls_silent_too() {
    for heartbeats in [true, false] {
        let (broker, [leader, follower]) = stable();
        broker.join(&leader);
        broker.join(&follower);
        let waits = broker.sync(&follower, 2, &[]);
        let (beating, time) =
            if heartbeats { (vec![&*leader], REBALANCE) } else { (vec![], SESSION) };
        broker.pass_with_heartbeats(time - SECOND, &beating, 2);
        broker.timer.advance(SECOND - MILLISECOND);
        assert_eq!(synced(&waits), None);
        broker.timer.advance(MILLISECOND);
        assert_eq!(synced(&waits), Some(Err(RebalanceInProgress)));
        assert_eq!(broker.heartbeat(&leader, 2), Err(UnknownMemberId));
        let response = broker.join(&follower).answer().expect("it is alone");
        assert_eq!((response.generation_id, &*response.leader), (3, &*follower));
    }
}

#[test]
fn who_leaves_starts_a_rebalance_and_the_last_one_takes_the_group_along() {
    let (broker, [leader, follower]) = stable();
    assert_eq!(broker.leave("stranger"), Err(UnknownMemberId));
    assert_eq!((broker.leave(&leader), broker.leave(&leader)), (Ok(()), Err(UnknownMemberId)));
    assert_eq!(broker.heartbeat(&follower, 1), Err(RebalanceInProgress));
    let join = broker.join(&follower);
    assert_eq!(join.answer().unwrap().generation_id, 2);
    broker.sync(&follower, 2, &[]);
    let third = broker.new_member_id();
    assert_eq!(broker.heartbeat(&follower, 2), Err(RebalanceInProgress));
    assert_eq!(broker.leave(&third), Ok(()));
    assert_eq!(broker.join(&follower).answer().unwrap().generation_id, 3);
    assert_eq!(broker.leave(&follower), Ok(()));
    assert_eq!((broker.parked(), broker.groups()), ((0, 0), 0));
    assert_eq!(broker.leave(&follower), Err(UnknownMemberId));

    let id = broker.new_member_id();
    let waits = broker.join(&id);
    assert_eq!(broker.leave(&id), Ok(()));
    assert_eq!(waits.answer().unwrap().error_code, UnknownMemberId.code());
}

#[test]
fn a_member_whose_client_is_gone_before_it_knows_its_id_is_forgotten() {
    let broker = Fixture::new(&[]);
    // Version 0 has no rebalance timeout.
    let first = join("", &["range"]).with_rebalance_timeout_ms(-1);
    let joins = broker.ask_at(0, &first);
    assert_eq!((broker.parked(), broker.groups()), ((1, 1), 1));
    broker.timer.advance(INITIAL_DELAY);
    let response = joins.answer().unwrap();
    assert_eq!(response.members.len(), 1);
    broker.timer.advance(SESSION);
    assert_eq!((broker.parked(), broker.groups()), ((0, 0), 0));
    let again = join(&response.member_id, &["range"]);
    assert_eq!(broker.refused(&again), UnknownMemberId);
}

#[test]
fn what_cannot_be_is_refused_by_its_name() {
    let bounds = ["--max-group-members", "2", "--max-groups", "1"];
    let broker = Fixture::new(&bounds);
    let request = join("", &["range"]);
    for session_timeout_ms in [i32::MIN, 0, 5_999, 1_800_001] {
        let request = request.clone().with_session_timeout_ms(session_timeout_ms);
        assert_eq!(broker.refused(&request), InvalidSessionTimeout);
    }
    let large = "x".repeat(20_000);
    for (case, request, error) in [
        ("no protocol", join("", &[]), InconsistentGroupProtocol),
        ("untyped", request.clone().with_protocol_type("".into()), InconsistentGroupProtocol),
        ("large protocols", join("", &[&*large; 4]), UnknownServerError),
        ("many protocols", join("", &[""; 17]), UnknownServerError),
        ("no name", request.clone().with_group_id(text("").into()), InvalidGroupId),
        ("stranger", join("stranger", &["range"]), UnknownMemberId),
    ] {
        assert_eq!(broker.refused(&request), error, "{case}");
    }
    assert_eq!(broker.heartbeat("stranger", 0), Err(UnknownMemberId));
    assert_eq!(broker.commit("stranger", 0, 0, 0), Err(UnknownMemberId));
    assert_eq!(broker.groups(), 0, "nothing was made");

    let [leader, _] = broker.two_members();
    let of_others = join(&leader, &["range"]).with_protocol_type("connect".into());
    for (case, request, error) in [
        ("another group", request.clone().with_group_id(text("h").into()), CoordinatorNotAvailable),
        ("one too many", request, GroupMaxSizeReached),
        ("stranger", join("stranger", &["range"]), UnknownMemberId),
        ("another protocol", join(&leader, &["sticky"]), InconsistentGroupProtocol),
        ("another type", of_others, InconsistentGroupProtocol),
    ] {
        assert_eq!(broker.refused(&request), error, "{case}");
    }
    assert_eq!(synced(&broker.sync(&leader, 9, &[])), Some(Err(IllegalGeneration)));
    assert_eq!(synced(&broker.sync("stranger", 1, &[])), Some(Err(UnknownMemberId)));
    assert_eq!(broker.heartbeat("stranger", 1), Err(UnknownMemberId));
}

#[test]
fn the_leaders_first_protocol_that_all_know_is_taken() {
    let broker = Fixture::new(&[]);
    let protocols = [["new", "b", "a"], ["a", "b", "old"]];
    let joins = protocols.map(|of| broker.ask(&join("", &of)));
    broker.timer.advance(INITIAL_DELAY);
    let response = joins[0].answer().unwrap();
    let expected = if response.leader == response.member_id { "b" } else { "a" };
    assert_eq!(response.protocol_name.as_deref(), Some(expected));
}

#[test]
fn offsets_outlive_their_members_and_are_committed_by_who_may() {
    let broker = Fixture::new(&[]);
    assert_eq!(broker.committed(&[0]), [(0, -1)]);
    assert_eq!(broker.commit("", -1, 99, 7), Err(UnknownTopicOrPartition));
    assert_eq!(broker.groups(), 0, "nothing was made");
    let [leader, follower] = broker.two_members();
    assert_eq!(
        (broker.commit(&leader, 1, 0, 7), broker.commit(&follower, 1, 2, 9)),
        (Ok(()), Ok(()))
    );
    assert_eq!(
        broker.commit(&leader, 1, 99, 7),
        Err(UnknownTopicOrPartition),
        "there is no such partition"
    );
    assert_eq!(broker.commit(&leader, 2, 0, 8), Err(IllegalGeneration));
    assert_eq!(broker.commit("", -1, 0, 8), Err(UnknownMemberId));
    assert_eq!((broker.leave(&leader), broker.leave(&follower)), (Ok(()), Ok(())));
    assert_eq!((broker.groups(), broker.parked()), (1, (0, 0)));
    assert_eq!(broker.commit("", -1, 1, 8), Ok(()), "from outside, with no members");
    assert_eq!(broker.committed(&[0, 1, 2, 9]), [(0, 7), (1, 8), (2, 9), (9, -1)]);
}

#[test]
fn a_member_goes_through_its_life_at_every_version() {
    for version in versions(ApiKey::JoinGroup) {
        let broker = Fixture::new(&[]);
        let joins = broker.ask_at(version, &join("", &["range"]));
        broker.timer.advance(INITIAL_DELAY);
        let response = joins.answer().unwrap();
        assert_eq!((response.error_code, response.generation_id), (0, 1));
        assert_eq!(response.members[0].metadata, "topics");
        let id = &*response.member_id;
        for version in versions(ApiKey::SyncGroup) {
            let syncs = broker.ask_at(version, &sync(id, 1, &[(id, "part")]));
            assert_eq!(synced(&syncs), assigned("part"));
        }
        for version in versions(ApiKey::Heartbeat) {
            let response = broker.ask_at(version, &heartbeat(id, 1)).answer().unwrap();
            assert_eq!(response.error_code, 0);
        }
        for version in versions(ApiKey::OffsetCommit) {
            let response = broker.ask_at(version, &commit(id, 1, &[(2, 7, "note")])).answer();
            assert_eq!(response.unwrap().topics[0].partitions[0].error_code, 0);
        }
        for version in versions(ApiKey::OffsetFetch) {
            let response = broker.ask_at(version, &fetch_offsets(&[2])).answer().unwrap();
            let found = &response.topics[0].partitions[0];
            assert_eq!((found.error_code, found.committed_offset), (0, 7));
            assert_eq!(found.metadata.as_deref(), Some("note"));
        }
        let response = broker.ask_at(version.min(2), &leave(id)).answer().unwrap();
        assert_eq!(response.error_code, 0);
    }
}

#[test]
fn there_is_no_coordinator_of_transactions() {
    let broker = Fixture::new(&[]);
    for version in versions(ApiKey::FindCoordinator) {
        let key_type = i8::from(version >= 1);
        let request = FindCoordinatorRequest::default().with_key_type(key_type);
        let response = broker.ask_at(version, &request).answer().unwrap();
        assert_eq!(response.error_code, if key_type == 1 { 53 } else { 0 });
    }
}

#[test]
fn a_shutdown_answers_whoever_waits() {
    let (broker, [leader, follower]) = stable();
    broker.join(&leader);
    broker.join(&follower);
    let waits = broker.sync(&follower, 2, &[]);
    broker.manager.shutdown();
    assert_eq!(synced(&waits), Some(Err(UnknownMemberId)));
    assert_eq!(broker.refused(&join("", &["range"])), NotCoordinator);
    assert_eq!(broker.refused(&join(&follower, &["range"])), UnknownMemberId);

    let broker = Fixture::new(&[]);
    let join = broker.join(&broker.new_member_id());
    broker.manager.shutdown();
    assert_eq!(join.answer().unwrap().error_code, 0);
}

/// Joins, has its assignment and leaves, in its own thread; the answers are waited for.
fn live(manager: &ReplicaManager, group: &'static str) {
    let mut member = String::new();
    loop {
        let join = join(&member, &["range"]).with_group_id(text(group).into());
        let response = wait_for_answer(manager, &join);
        match told(response.error_code) {
            Ok(()) => member = response.member_id.to_string(),
            Err(CoordinatorNotAvailable | UnknownMemberId) => continue, // the group has just gone
            Err(other) => panic!("{other}"),
        }
        let parts: Vec<_> = response.members.iter().map(|one| (&*one.member_id, "part")).collect();
        let sync = sync(&member, response.generation_id, &parts).with_group_id(text(group).into());
        let response = wait_for_answer(manager, &sync);
        match told(response.error_code) {
            Ok(()) => break assert_eq!(response.assignment, "part"),
            Err(RebalanceInProgress | IllegalGeneration) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let response = wait_for_answer(manager, &leave(&member).with_group_id(text(group).into()));
    assert_eq!(response.error_code, 0);
}

fn wait_for_answer<Q: Request>(manager: &ReplicaManager, body: &Q) -> Q::Response {
    let asked = ask(manager, crate::fuzz::client(manager, 0), latest::<Q>(), body).unwrap();
    wait_until(|| asked.client.pipeline.is_ready());
    asked.answer().expect("an answer")
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

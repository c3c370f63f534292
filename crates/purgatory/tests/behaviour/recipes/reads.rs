//! Reads by read index: answers that come late, out of order, or from another term.

use std::pin::Pin;

use super::{
    guide::read_index::{Leader, Server},
    *,
};

type Read<'a> = Pin<Box<dyn Future<Output = Result<u64, WaitError>> + 'a>>;

/// Creates a server of three nodes that leads term 7. It is node 0, and its log ends at 40.
fn leader() -> (ManualTimer, Server, Leader) {
    let timer = ManualTimer::new();
    let server = Server {
        logs: ReplicaSets::on(&timer, "logs").unwrap(),
        heard: ReplicaSets::on(&timer, "heard").unwrap(),
        applied: Watermarks::on(&timer, "applied").unwrap(),
    };
    let leader = server.lead(7, &[0, 1, 2], 40).unwrap();
    (timer, server, leader)
}

/// The same, with the leader's empty entry committed and applied.
fn leader_that_knows() -> (ManualTimer, Server, Leader) {
    let (timer, server, leader) = leader();
    commit(&server, 7, 41);
    server.applied.advance(&(), 41).unwrap();
    (timer, server, leader)
}

/// Lets the leader and node 1 have the log up to this index.
fn commit(server: &Server, term: u64, index: u64) {
    server.appended(term, 0, index).unwrap();
    server.appended(term, 1, index).unwrap();
}

/// Begins a read that has to wait.
#[track_caller]
fn waits(leader: &Leader) -> Read<'_> {
    let mut read: Read<'_> = Box::pin(leader.read(10 * SECOND));
    assert!(poll(&mut read).is_pending());
    read
}

fn nothing_waits_here(server: &Server) {
    nothing_waits(&server.logs.waits());
    nothing_waits(&server.heard.waits());
    nothing_waits(&server.applied.waits());
}

#[test]
fn answers_to_earlier_rounds_serve_no_read() {
    let (_timer, server, leader) = leader_that_knows();
    let before = leader.begin_round(0).unwrap();
    let mut read = waits(&leader);
    server.answered(7, 1, before).unwrap();
    server.answered(7, 2, before).unwrap();
    assert!(poll(&mut read).is_pending());

    // One round serves all reads. A node's answers come in reverse order, and then twice.
    let mut later = waits(&leader);
    let [lost, round] = [(); 2].map(|()| leader.begin_round(0).unwrap());
    assert_eq!(server.answered(7, 1, round), Ok(2));
    assert_eq!(server.answered(7, 1, lost), Ok(0));
    assert_eq!(server.answered(7, 1, round), Ok(0));
    assert_eq!((over(&mut read), over(&mut later)), (Ok(41), Ok(41)));
    nothing_waits_here(&server);
}

/// Entries committed after the read came do not hold it up, and neither do other clients' writes.
#[test]
fn read_waits_for_the_index_at_its_start() {
    let (_timer, server, leader) = leader_that_knows();
    commit(&server, 7, 45);
    let mut read = waits(&leader);
    commit(&server, 7, 50);
    let round = leader.begin_round(0).unwrap();
    server.answered(7, 1, round).unwrap();
    server.applied.advance(&(), 44).unwrap();
    assert!(poll(&mut read).is_pending());
    server.applied.advance(&(), 45).unwrap();
    assert_eq!(over(&mut read), Ok(45));
    nothing_waits_here(&server);
}

/// Node 1 answered in term 7, and its answer comes when the server leads term 9.
#[test]
fn answers_of_an_earlier_term_serve_no_read() {
    let (_timer, server, leader) = leader_that_knows();
    let mut old = waits(&leader);
    let round = leader.begin_round(0).unwrap();
    server.follow(8).unwrap();
    let over_in_8 = Err(WaitError::Cancelled(epoch_over(7, 8)));
    assert_eq!(over(&mut old), over_in_8);

    let next = server.lead(9, &[0, 1, 2], 50).unwrap();
    commit(&server, 9, 51);
    server.applied.advance(&(), 51).unwrap();
    let mut read = waits(&next);
    assert_eq!(server.answered(7, 1, round + 1), Err(other_epoch(7, 9)));
    let of_old = over(&mut Box::pin(leader.read(SECOND)));
    assert_eq!(of_old, Err(other_epoch(7, 9)));
    assert!(leader.begin_round(0).is_err());
    assert!(poll(&mut read).is_pending());
    let round = next.begin_round(0).unwrap();
    server.answered(9, 1, round).unwrap();
    assert_eq!(over(&mut read), Ok(51));
    nothing_waits_here(&server);
}

/// Any of its three waits may use the time up.
#[test]
fn read_has_one_deadline() {
    let (timer, server, leader) = leader();
    let [mut first, mut second, mut third] = [(); 3].map(|()| waits(&leader));
    timer.advance(4 * SECOND);
    commit(&server, 7, 41);
    assert!(poll(&mut second).is_pending());
    assert!(poll(&mut third).is_pending());
    let round = leader.begin_round(0).unwrap();
    server.answered(7, 1, round).unwrap();
    timer.advance(4 * SECOND);
    assert!(poll(&mut third).is_pending());
    timer.advance(2 * SECOND);
    for read in [&mut first, &mut second, &mut third] {
        assert_eq!(over(read), Err(WaitError::Expired));
    }
    nothing_waits_here(&server);
}

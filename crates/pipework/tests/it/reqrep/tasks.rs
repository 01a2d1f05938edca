//! Tasks at both ends of a segment, in processes that share nothing else and are killed meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::Duration;

use pipework::reqrep::{Client, ClientOptions, Options, Segment, Server};
use pipework::{Error, ErrorKind};
use tokio::runtime;
use tokio::time::timeout;

use super::doorbells::open;
use crate::harness::{Folder, PATIENCE, alone, fork, say, shared};

fn one_thread() -> runtime::Runtime {
    runtime::Builder::new_current_thread().enable_time().build().expect("a runtime")
}

fn three_threads() -> runtime::Runtime {
    runtime::Builder::new_multi_thread().worker_threads(3).enable_time().build().expect("a runtime")
}

/// Answers from `tasks` tasks until it is killed. Each request takes `work`.
async fn serve_in_tasks(server: Server, tasks: usize, work: Duration) {
    let serve = |server: Server| async move {
        while let Ok(request) = server.recv_async().await {
            if !work.is_zero() {
                tokio::time::sleep(work).await;
            }
            let answer = request.to_vec();
            request.reply(&answer).expect("an answer");
        }
    };
    let tasks: Vec<_> = (0..tasks).map(|_| tokio::spawn(serve(server.clone()))).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    panic!("the segment is out of order");
}

/// Makes `each` calls one after the other from each of `tasks` tasks; returns how they ended.
async fn call_in_tasks(client: Client, tasks: u32, each: u32) -> Vec<Result<(), Error>> {
    let call = |client: Client, task: u32| async move {
        let mut ends = Vec::new();
        for turn in 0..each {
            let request = [task.to_le_bytes(), turn.to_le_bytes()].concat();
            let reply = client.call_async(&request).await;
            ends.push(reply.map(|reply| assert_eq!(*reply, request)).map_err(Error::from));
        }
        ends
    };
    let tasks: Vec<_> = (0..tasks).map(|task| tokio::spawn(call(client.clone(), task))).collect();
    let mut ends = Vec::new();
    for task in tasks {
        ends.extend(task.await.expect("no panic"));
    }
    ends
}

#[test]
fn calls_between_runtimes_of_two_processes_all_succeed() {
    alone(|| {
        let folder = Folder::new();
        for (servers, callers) in
            [(one_thread as fn() -> _, three_threads as fn() -> _), (three_threads, one_thread)]
        {
            let serving = fork(|| {
                servers().block_on(async {
                    serve_in_tasks(open(&folder).server().expect("a place"), 3, Duration::ZERO).await
                });
            });
            // In its own process as well, so that the forking process has no runtime.
            let calling = fork(|| {
                let client = open(&folder).client().expect("a place");
                // More tasks than slots.
                let ends = callers().block_on(call_in_tasks(client.clone(), 30, 50));
                assert!(ends.len() == 1500 && ends.iter().all(Result::is_ok));
                assert_eq!((client.pending(), client.segment().audit().expect("an audit").free), (0, 8));
            });
            calling.join();
            serving.kill();
        }
    });
}

#[test]
fn tasks_get_peer_died_when_servers_are_killed() {
    alone(|| {
        let (folder, end) = (Folder::new(), shared(1));
        let segment = open(&folder);
        let calling = fork(|| {
            let client = open(&folder).client().expect("a place");
            let options = ClientOptions::new().redeliveries(3);
            let patient = client.segment().client_with(&options).expect("a place");
            let mut ends = [vec![], vec![]];
            three_threads().block_on(async {
                while end[0].load(SeqCst) == 0 {
                    let calls = [client.clone(), patient.clone()].map(|client| call_in_tasks(client, 4, 5));
                    let [some, others] = calls;
                    let (some, others) = tokio::join!(some, others);
                    ends[0].extend(some);
                    ends[1].extend(others);
                }
            });
            let died = ends.map(|ends| {
                let errors: Vec<Error> = ends.iter().filter_map(|end| end.err()).collect();
                assert!(errors.iter().all(|error| error.kind() == ErrorKind::PeerDied), "{errors:?}");
                (errors.len(), ends.len())
            });
            say(&format!(
                "tasks: calls that died with their servers, of all, without and with redelivery: {died:?}"
            ));
            assert!(died[0].0 > 0, "10 were killed, most of them while serving");
        });
        let work = Duration::from_millis(1);
        let serve = || {
            fork(|| {
                one_thread().block_on(async {
                    serve_in_tasks(open(&folder).server().expect("a place"), 4, work).await;
                });
            })
        };
        // Two servers at a time. Each lives long enough to take some requests.
        let mut servers = VecDeque::from([serve()]);
        for _ in 0..10 {
            servers.push_back(serve());
            thread::sleep(Duration::from_millis(30));
            servers.pop_front().expect("two are there").kill();
        }
        end[0].store(1, SeqCst);
        calling.join();
        servers.into_iter().for_each(|last| last.kill());
        segment.recover().expect("a segment in order");
        assert_eq!(segment.audit().expect("an audit").free, 8);
    });
}

#[test]
fn futures_dropped_by_timeout_and_select_lose_no_slot() {
    alone(|| {
        let [left, right] = [(); 2].map(|()| Options::new().slots(4).anonymous().expect("a segment"));
        three_threads().block_on(async {
            let client = left.client().expect("a place");
            for _ in 0..10 {
                let call = timeout(Duration::from_millis(2), client.call_async("not answered"));
                assert!(call.await.is_err() && client.pending() == 0);
            }
            // The four entries of the last calls are still in the ring and must not block anything.
            let servers = [left.server().expect("a place"), right.server().expect("a place")];
            let serving = tokio::spawn(async move {
                let (mut served, mut idle) = ([0; 2], 0);
                while served != [500, 500] {
                    // Each turn drops one of the two futures, sometimes both.
                    let (side, request) = tokio::select! {
                        request = servers[0].recv_async() => (0, request),
                        request = servers[1].recv_async() => (1, request),
                        () = tokio::time::sleep(Duration::from_millis(1)) => {
                            idle += 1;
                            continue;
                        }
                    };
                    served[side] += 1;
                    assert!(request.expect("a request").reply("x").expect("an answer"));
                }
                idle
            });
            let call = |segment: &Segment| {
                let client = segment.client().expect("a place");
                tokio::spawn(async move {
                    for turn in 0..500 {
                        assert_eq!(&*client.call_async("a").await.expect("a reply"), b"x");
                        if turn % 50 == 0 {
                            tokio::time::sleep(Duration::from_millis(3)).await;
                        }
                    }
                })
            };
            let calls = [call(&left), call(&right)];
            for call in calls {
                timeout(PATIENCE, call).await.expect("in time").expect("no panic");
            }
            assert!(serving.await.expect("no panic") > 0);
        });
        assert_eq!([left, right].map(|segment| segment.audit().expect("an audit").free), [4, 4]);
    });
}

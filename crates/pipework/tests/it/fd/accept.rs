//! Storms of connections, threads that accept them, and a process without descriptors.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use pipework::ErrorKind;
use pipework::fd::{Accepted, PollFd, PollFlags, Reserve, Shed, Stopped, accept_many, poll, write_all};
use rustix::fs::OFlags;
use rustix::io::FdFlags;

use super::{SHORT, leave_descriptors, listener};
use crate::harness::{Folder, PATIENCE, alone};

fn clients(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap()).collect()
}

#[test]
fn accept_many_accepts_all_connections_with_their_addresses() {
    alone(|| {
        let listener = listener();
        let waiting = clients(&listener, 100);
        let Accepted { connections, stopped } = accept_many(&listener, 60);
        assert_eq!((connections.len(), stopped), (60, Stopped::Limit));
        let rest = accept_many(&listener, usize::MAX);
        assert_eq!((rest.connections.len(), rest.stopped), (40, Stopped::WouldBlock));
        for (mut client, connection) in
            waiting.into_iter().zip(connections.into_iter().chain(rest.connections))
        {
            let peer = SocketAddr::try_from(connection.peer.expect("TCP has addresses"));
            assert_eq!(peer, Ok(client.local_addr().unwrap()));
            assert_eq!(rustix::io::fcntl_getfd(&connection.fd).unwrap(), FdFlags::CLOEXEC);
            assert!(rustix::fs::fcntl_getfl(&connection.fd).unwrap().contains(OFlags::NONBLOCK));
            write_all(&connection.fd, b"served", PATIENCE).unwrap();
            drop(connection.fd);
            let mut got = String::new();
            client.read_to_string(&mut got).unwrap();
            assert_eq!(got, "served");
        }
        let none = accept_many(&listener, 0);
        assert_eq!((none.connections.len(), none.stopped), (0, Stopped::Limit));
    });
}

#[test]
fn accept_many_does_not_wait_on_a_blocking_listener() {
    alone(|| {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.join("socket")).unwrap();
        let clients: Vec<_> = (0..3).map(|_| UnixStream::connect(folder.join("socket")).unwrap()).collect();
        let accepted = accept_many(&listener, 64);
        assert_eq!((accepted.connections.len(), accepted.stopped), (3, Stopped::WouldBlock));
        assert!(!rustix::fs::fcntl_getfl(&listener).unwrap().contains(OFlags::NONBLOCK));
        drop(clients);
    });
}

#[test]
fn process_without_descriptors_sheds_some_connections_and_loses_none() {
    alone(|| {
        const SPARE: usize = 5;
        let listener = listener();
        let mut reserve = Reserve::new().unwrap();
        let waiting = clients(&listener, 20);
        leave_descriptors(SPARE);
        let accepted = accept_many(&listener, 64);
        assert_eq!(accepted.connections.len(), SPARE);
        let Stopped::NoDescriptors(error) = accepted.stopped else { panic!("{:?}", accepted.stopped) };
        assert_eq!((error.kind(), error.errno()), (ErrorKind::Os, Some(libc::EMFILE)));
        // Another try fails at once.
        assert_eq!(accept_many(&listener, 64).stopped, Stopped::NoDescriptors(error));

        assert_eq!(reserve.shed(&listener, 10), Shed { turned_away: 10, stopped: Stopped::Limit });
        assert!(reserve.is_held());
        let mut waiting = waiting.into_iter();
        for mut turned_away in waiting.by_ref().skip(SPARE).take(10) {
            assert_eq!(turned_away.read(&mut [0; 1]).unwrap(), 0);
        }
        // Connections that were not turned away have waited, and are served as others leave.
        drop(accepted.connections);
        let rest = accept_many(&listener, 64);
        assert_eq!(rest.connections.len(), 5);
        for (mut client, connection) in waiting.zip(&rest.connections) {
            write_all(&connection.fd, b"!", PATIENCE).unwrap();
            assert_eq!(client.read(&mut [0; 2]).unwrap(), 1);
        }
    });
}

#[test]
fn many_threads_accept_each_connection_once() {
    alone(|| {
        const ASKERS: usize = 2;
        const EACH: usize = 200;
        let (listener, served) = (listener(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while served.load(Ordering::SeqCst) < ASKERS * EACH {
                        poll(&mut [PollFd::new(&listener, PollFlags::IN)], SHORT).unwrap();
                        for connection in accept_many(&listener, 16).connections {
                            write_all(&connection.fd, b"1", PATIENCE).unwrap();
                            served.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            for _ in 0..ASKERS {
                scope.spawn(|| {
                    for mut client in clients(&listener, EACH) {
                        let mut got = String::new();
                        client.read_to_string(&mut got).unwrap();
                        assert_eq!(got, "1");
                    }
                });
            }
        });
        assert_eq!(served.into_inner(), ASKERS * EACH);
    });
}

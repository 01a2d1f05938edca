//! Batches of datagrams, and a receiver whose queue is full.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::thread;
use std::time::Duration;

use pipework::ErrorKind;
use pipework::fd::{Inbox, SocketAddrAny, send_many};

use super::SHORT;
use crate::harness::{Folder, PATIENCE, alone};

#[test]
fn datagrams_arrive_in_order_with_their_sender_and_is_cut() {
    alone(|| {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("[::1]:0"));
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to: SocketAddrAny = receiver.local_addr().unwrap().into();
        let bodies: Vec<Vec<u8>> = (0..150u8).map(|i| vec![i; usize::from(i)]).collect();
        let all: Vec<(&[u8], _)> = bodies.iter().map(|body| (body.as_slice(), Some(&to))).collect();
        send_many(&here, &all, PATIENCE).unwrap();
        let mut inbox = Inbox::new(64, 120).unwrap();
        let mut come = 0;
        while come < bodies.len() {
            let got = inbox.recv(&receiver, PATIENCE).unwrap();
            assert!((1..=Inbox::MOST).contains(&got) && got == inbox.iter().len());
            for datagram in inbox.iter() {
                let body = &bodies[come];
                assert_eq!(datagram.bytes, &body[..body.len().min(120)]);
                assert_eq!(datagram.is_cut, body.len() > 120);
                let from = SocketAddr::try_from(datagram.from.unwrap().clone());
                assert_eq!(from, Ok(here.local_addr().unwrap()));
                come += 1;
            }
        }
        assert_eq!(inbox.recv(&receiver, SHORT).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(inbox.iter().len(), 0);
        if let Ok(there) = there {
            let error = send_many(&there, &[(b"other family", Some(&to))], PATIENCE).unwrap_err();
            assert_eq!(error.done, 0);
        }
        assert_eq!(
            send_many(&here, &[(&[0; 70_000], Some(&to))], PATIENCE).unwrap_err().error.errno(),
            Some(libc::EMSGSIZE)
        );
    });
}

#[test]
fn send_many_waits_for_a_full_queue_without_spinning() {
    alone(|| {
        let folder = Folder::new();
        let receiver = UnixDatagram::bind(folder.join("socket")).unwrap();
        let sender = UnixDatagram::unbound().unwrap();
        let to = rustix::net::SocketAddrUnix::new(folder.join("socket")).unwrap().into();
        let all: Vec<(&[u8], _)> = (0..1000).map(|_| (&b"more than it holds"[..], Some(&to))).collect();
        // User and system time of this process, in hundredths of a second: fields 14 and 15,
        // counted from the end of the name.
        let cpu = || {
            let stat = fs::read_to_string("/proc/self/stat").unwrap();
            let fields = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
            fields.map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
        };
        let before = cpu();
        let stopped = send_many(&sender, &all, Duration::from_millis(400)).unwrap_err();
        assert_eq!(stopped.kind(), ErrorKind::TimedOut);
        let used = cpu() - before;
        assert!(used < 20, "{used} hundredths of a second of CPU in 40 of waiting");
        let mut inbox = Inbox::new(64, 100).unwrap();
        let mut come = 0;
        thread::scope(|scope| {
            let rest = scope.spawn(|| send_many(&sender, &all[stopped.done as usize..], PATIENCE));
            while come < all.len() {
                come += inbox.recv(&receiver, PATIENCE).unwrap();
            }
            rest.join().unwrap().unwrap();
        });
        assert_eq!(come, all.len());
    });
}

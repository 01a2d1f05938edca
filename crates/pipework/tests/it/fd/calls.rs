//! Operations of a single call: records, positions, temporary names, options, polls.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::net::UdpSocket;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use pipework::fd::{
    CWD, PollFd, PollFlags, mkstemp_at, mktemp_at, option_bytes, option_number, poll, pread_full, pwrite_all,
    read_full, set_option_number,
};
use pipework::{Deadline, ErrorKind};
use rustix::io::FdFlags;

use super::{Kind, SHORT, drain, pattern};
use crate::harness::{Folder, PATIENCE, alone};

#[test]
fn read_full_reads_records_and_pread_full_any_position() {
    alone(|| {
        let (target, out) = Kind::File.ends();
        let sent = pattern(10_000);
        pwrite_all(&target, &sent[5000..], 5000).unwrap();
        pwrite_all(&target, &sent[..5000], 0).unwrap();
        let mut record = [0; 1234];
        let records: Vec<_> = std::iter::from_fn(|| {
            let len = read_full(&out, &mut record, PATIENCE).unwrap();
            (len > 0).then(|| record[..len].to_vec())
        })
        .collect();
        assert_eq!(records.iter().map(Vec::len).collect::<Vec<_>>(), [&[1234; 8][..], &[128]].concat());
        assert!(records.concat() == sent);
        let mut got = vec![0; 3000];
        assert_eq!(pread_full(&out, &mut got, 8000), Ok(2000));
        assert!(got[..2000] == sent[8000..]);
        // The descriptor's own position counts, and a slurp begins there.
        let mut file = File::from(out);
        file.seek(SeekFrom::Start(9000)).unwrap();
        assert!(drain(&file) == sent[9000..]);
        assert!(drain(File::open("/proc/self/status").unwrap()).len() > 100);
        assert_eq!(drain(File::open("/dev/null").unwrap()), b"");
    });
}

#[test]
fn temporary_names_are_new_private_and_in_their_folder() {
    alone(|| {
        let folder = Folder::new();
        fs::create_dir(folder.join("sub")).unwrap();
        let sub = File::open(folder.join("sub")).unwrap();
        let made: Vec<_> = (0..50).map(|_| mkstemp_at(&sub, "a-XXXXXX".as_ref()).unwrap()).collect();
        let names: std::collections::BTreeSet<_> = made.iter().map(|(_, name)| name.clone()).collect();
        assert_eq!((names.len(), fs::read_dir(folder.join("sub")).unwrap().count()), (50, 50));
        for (fd, name) in &made {
            assert!(name.len() == 8 && name.to_str().unwrap().starts_with("a-"));
            let (by_fd, by_name) = (File::from(fd.try_clone().unwrap()), folder.join("sub").join(name));
            assert_eq!(by_fd.metadata().unwrap().ino(), fs::symlink_metadata(&by_name).unwrap().ino());
            assert_eq!(by_fd.metadata().unwrap().permissions().mode() & 0o777, 0o600);
            assert_eq!(rustix::io::fcntl_getfd(fd).unwrap(), FdFlags::CLOEXEC);
        }
        // All of the X at the end are replaced, and none before them.
        let (_, long) = mkstemp_at(&sub, "XXXXXX-XXXXXXXXXXXXXXXXXXXX".as_ref()).unwrap();
        assert!(long.to_str().unwrap().starts_with("XXXXXX-") && !long.to_str().unwrap().ends_with("XXXXXX"));
        let free = mktemp_at(CWD, folder.join("free-XXXXXX").as_os_str()).unwrap();
        assert!(!fs::exists(free).unwrap());
        for bad in ["", "XXXXX", "XXXXXXx", "a-XXXXXX.txt"] {
            assert_eq!(mkstemp_at(&sub, bad.as_ref()).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
            assert_eq!(mktemp_at(&sub, bad.as_ref()).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        for bad in ["nowhere/XXXXXX", "a\0XXXXXX"] {
            assert!(mkstemp_at(&sub, bad.as_ref()).is_err(), "{bad:?}");
        }
    });
}

#[test]
fn option_numbers_are_set_and_read() {
    alone(|| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (name, value) in [(libc::SO_KEEPALIVE, 1), (libc::SO_BROADCAST, 1), (libc::SO_BROADCAST, 0)] {
            set_option_number(&socket, libc::SOL_SOCKET, name, value).unwrap();
            assert_eq!(option_number(&socket, libc::SOL_SOCKET, name), Ok(value));
        }
        assert_eq!(option_number(&socket, libc::SOL_SOCKET, libc::SO_TYPE), Ok(libc::SOCK_DGRAM));
        let mut long = [7; 100];
        assert_eq!(option_bytes(&socket, libc::SOL_SOCKET, libc::SO_LINGER, &mut long), Ok(8));
        assert_eq!(long, [0; 100]);
    });
}

#[test]
fn poll_returns_at_its_deadline_or_when_ready() {
    alone(|| {
        let (read, mut write) = std::io::pipe().unwrap();
        let mut watched = [PollFd::new(&read, PollFlags::IN)];
        assert_eq!(poll(&mut watched, SHORT), Ok(0));
        assert_eq!(poll(&mut [], SHORT), Ok(0));
        write.write_all(b"1").unwrap();
        assert_eq!(poll(&mut watched, Deadline::NEVER), Ok(1));
        assert!(watched[0].revents().contains(PollFlags::IN));
    });
}

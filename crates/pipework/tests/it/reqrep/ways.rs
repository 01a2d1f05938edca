//! Channels that are reached in another way than by the path at which they were made, and by processes
//! that have lost their way to the folder of the blobs.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

use pipework::ErrorKind;
use pipework::reqrep::{Client, Options, Segment, Server};

use crate::harness::damage::{enter_mount_namespace, mount_bind, mount_tmpfs};
use crate::harness::{Folder, PATIENCE, alone, awaited, become_nobody, fork, shared};

/// Longer than a slot, so that it goes through a file beside the channel.
const LONG: &[u8] = &[7; 100_000];

fn small() -> Options {
    Options::new().slots(2).members(8).request_bytes(64).reply_bytes(200).blob_pool(0)
}

/// Checks that long messages go from each of the two to the other.
fn answer_each_other(near: &Segment, far: &Segment) {
    for (one, other) in [(near, far), (far, near)] {
        let (client, server) = (one.client().unwrap(), other.server().unwrap());
        let ticket = client.send(LONG, PATIENCE).unwrap();
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!(&*request, LONG);
        assert_eq!(request.reply(LONG), Ok(true));
        assert_eq!(&*client.recv(ticket, PATIENCE).unwrap(), LONG);
    }
    assert_eq!(near.blob_folder(), far.blob_folder());
}

#[test]
fn long_messages_work_through_hard_links_and_after_renames() {
    let folder = Folder::new();
    fs::create_dir(folder.join("elsewhere")).unwrap();
    let [made, link, moved] = ["made", "elsewhere/link", "elsewhere/moved"].map(|name| folder.join(name));
    let near = small().create(&made).unwrap();
    fs::hard_link(&made, &link).unwrap();
    answer_each_other(&near, &small().open(&link).unwrap());
    fs::rename(&made, &moved).unwrap();
    answer_each_other(&near, &small().open(&moved).unwrap());
    // No process is left that knows the folder, and there is none.
    drop(near);
    answer_each_other(&small().open(&link).unwrap(), &small().open(&moved).unwrap());
    let names: Vec<_> =
        fs::read_dir(folder.join("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["elsewhere"], "all files of blobs are gone, and their folder");
}

#[test]
fn long_messages_work_through_bind_mounts_of_the_folder_and_of_the_file() {
    alone(|| {
        let folder = Folder::new();
        let [home, mount, file] = ["home", "mount", "file"].map(|name| folder.join(name));
        fs::create_dir(&home).unwrap();
        fs::create_dir(&mount).unwrap();
        fs::write(&file, "").unwrap();
        let near = small().create(home.join("channel")).unwrap();
        if !enter_mount_namespace() || !mount_bind(&home, &mount) || !mount_bind(&home.join("channel"), &file)
        {
            return;
        }
        answer_each_other(&near, &small().open(mount.join("channel")).unwrap());
        answer_each_other(&near, &small().open(&file).unwrap());
        // A process that sees only the mount of the folder, as a container does.
        let child = fork(|| {
            let server = small().open(mount.join("channel")).unwrap();
            assert!(enter_mount_namespace() && mount_tmpfs(&home, "size=1m"));
            let far = small().open(mount.join("channel")).unwrap();
            assert_eq!(far.blob_folder().parent(), Some(&*mount));
            drop(server);
            let request = far.server().unwrap();
            let request = request.recv(PATIENCE).unwrap();
            assert_eq!(&*request, LONG);
            assert_eq!(request.reply(LONG), Ok(true));
        });
        let client = near.client().unwrap();
        drop(client.call(LONG, PATIENCE));
        child.join();
    });
}

/// Checks that a long request fails at both sides with this error, and that short ones work.
fn fail_at_both_sides(client: &Client, near: &Segment, errno: i32) {
    let failed = client.call(LONG, PATIENCE).unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Failed);
    let reason = String::from_utf8_lossy(failed.reason().expect("there is one")).into_owned();
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    assert!(reason.contains(&text), "{reason}");
    assert!(reason.contains(near.blob_folder().to_str().unwrap()), "{reason}");
    assert_eq!(&*client.call("short", PATIENCE).unwrap(), b"short");
}

/// As a server that has no way to the folder of the blobs.
fn serve_without_folder(server: &Server, errno: i32) {
    let refused = server.recv(PATIENCE).map(drop).unwrap_err();
    assert_eq!((refused.errno(), refused.op()), (Some(errno), "reqrep recv: folder of the blobs"));
    let request = server.recv(PATIENCE).unwrap();
    let answer = request.to_vec();
    assert_eq!(request.reply(&answer), Ok(true));
}

#[test]
fn long_request_fails_with_a_reason_when_its_server_has_changed_its_root() {
    alone(|| {
        let folder = Folder::new();
        let near = small().create(folder.join("channel")).unwrap();
        let empty = folder.join("empty");
        fs::create_dir(&empty).unwrap();
        let child = fork(|| {
            let server = near.server().unwrap();
            if rustix::process::chroot(&empty).is_ok() {
                serve_without_folder(&server, libc::ENOENT);
            }
        });
        if rustix::process::geteuid().is_root() {
            fail_at_both_sides(&near.client().unwrap(), &near, libc::ENOENT);
        }
        child.join();
    });
}

#[test]
fn long_request_fails_with_a_reason_when_its_server_has_given_up_its_rights() {
    alone(|| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = Folder::new();
        let near = small().create(folder.join("channel")).unwrap();
        let child = fork(|| {
            let server = near.server().unwrap();
            become_nobody();
            serve_without_folder(&server, libc::EACCES);
        });
        fail_at_both_sides(&near.client().unwrap(), &near, libc::EACCES);
        child.join();
    });
}

#[test]
fn users_that_may_only_enter_the_folder_send_long_messages_with_mode_0666() {
    alone(|| {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = Folder::new();
        let home = folder.join("home");
        fs::create_dir(&home).unwrap();
        for path in [Path::new(&folder.join("")), &home] {
            fs::set_permissions(path, Permissions::from_mode(0o711)).unwrap();
        }
        let path = home.join("channel");
        let near = small().mode(0o666).create(&path).unwrap();
        let done = shared(1);
        let (server, client) = (near.server().unwrap(), near.client().unwrap());
        let child = fork(|| {
            become_nobody();
            let far = small().any_owner(true).open(&path).unwrap();
            let caller = far.client().unwrap();
            let reply = caller.call(LONG, PATIENCE).unwrap();
            assert_eq!(&*reply, LONG);
            drop((reply, caller));
            let server = far.server().unwrap();
            done[0].store(1, SeqCst);
            let request = server.recv(PATIENCE).unwrap();
            assert_eq!(&*request, LONG);
            assert_eq!(request.reply(LONG), Ok(true));
        });
        let request = server.recv(PATIENCE).unwrap();
        assert_eq!(&*request, LONG);
        assert_eq!(request.reply(LONG), Ok(true));
        drop(server);
        awaited(&done[0]);
        assert_eq!(&*client.call(LONG, PATIENCE).unwrap(), LONG);
        child.join();
        drop(client);
        // The folder goes with the name.
        assert_eq!(near.unlink(), Ok(true));
        drop(near);
        assert_eq!(fs::read_dir(&home).unwrap().count(), 0);
    });
}

//! Jobs in a channel: `pipework call --queue` and `pipework serve --attempts`.

use crate::ls::wait_until;
use crate::run::send_signal;
use crate::{Folder, clean, fails, sh, shell};
use pipework::reqrep::{Options, Role, Segment};
use rustix::process::Signal;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

/// A shell function that waits until a file has that many lines.
const UNTIL: &str = "until_lines() { until [ \"$(cat $1 2> gone | wc -l)\" -ge $2 ]; do sleep 0.02; done; };";

#[test]
fn jobs_are_carried_out_after_their_sender_has_left() {
    // The sender of the jobs leaves before a server starts.
    let script = format!(
        "{UNTIL} pipework serve -q ch -- cat & S=$!; pipework call --wait ch begin; echo; kill -9 $S; wait $S 2> gone
        seq 20 | pipework call --queue --lines ch; echo $?; pipework call --queue --json ch 21
        pipework serve --workers 3 ch -- sh -c 'echo $(cat) >> done; echo to nobody' & S=$!; until_lines done 21
        kill $S; wait $S; echo $?; sort -n done | paste -s; ls ch"
    );
    let done = sh(&Folder::new(), &script);
    let numbers: Vec<String> = (1..=21).map(|n| n.to_string()).collect();
    let lines: Vec<&str> = done.out.lines().collect();
    assert_eq!(lines[..2], ["begin", "0"], "{done:?}");
    assert!(lines[2].starts_with("{\"index\":1,\"outcome\":\"queued\",\"seconds\":"), "{done:?}");
    assert_eq!((lines[3], lines[4], lines[5]), ("0", &*numbers.join("\t"), "ch"), "{done:?}");
}

#[test]
fn job_returns_to_the_queue_when_its_worker_is_killed() {
    // Both ways of serving: the first process of the command stops in the middle of its job.
    let each =
        "ch -- sh -c 'job=$(cat); echo $job >> begun; mkdir first && exec sleep 1000; echo $job >> done'";
    let stays = "--lines ch -- sh -c 'while read job; do echo $job >> begun; mkdir first && exec sleep 1000
        echo $job >> done; echo; done'";
    for serve in [each, stays] {
        for next in ["before", "after"] {
            let other = format!("pipework serve {serve} 2>> err & T=$!");
            let (before, after) = if next == "before" { (other.as_str(), "") } else { ("", other.as_str()) };
            let script = format!(
                "{UNTIL} pipework serve {serve} 2>> err & S=$!; until pipework call --queue ch one 2> gone; do :; done
                until_lines begun 1; {before}
                pipework call --queue ch two three; kill -9 $S; wait $S 2> gone; {after}
                until_lines done 3; kill $T; wait $T; echo $?; sort done"
            );
            let done = sh(&Folder::new(), &script);
            assert_eq!(done.out, "0\none\nthree\ntwo\n", "{serve} {next}: {done:?}");
        }
    }
}

#[test]
fn job_that_fails_is_retried_and_then_set_aside() {
    for (command, reason) in [
        ("echo why >&2; exit 1", "why"),
        ("kill -9 $$", "signal: 9"),
        ("sleep 1000", "it took longer than the 0.5 s that it may"),
    ] {
        let script = format!(
            "{UNTIL} pipework serve --timeout 0.5 --grace 0.1 --attempts 2 ch -- sh -c 'job=$(cat)
                echo $job >> tried; [ $job = good ] || {{ {command}; }}' 2> err & S=$!
            until pipework call --queue ch good bad 2> gone; do :; done
            until ls ch.failed/*-* > list 2> gone; do sleep 0.02; done; kill $S; wait $S; echo $?
            sort tried; cat $(cat list); echo; stat -c %a ch.failed $(cat list); grep -c 'attempt 1 of 2' err
            grep 'after 2 attempts it is set aside as ch.failed/' err; ls"
        );
        let done = sh(&Folder::new(), &script);
        let expected = "0\nbad\nbad\ngood\nbad\n700\n600\n1\n";
        let rest = done.out.strip_prefix(expected).unwrap_or_else(|| panic!("{command}: {done:?}"));
        assert!(rest.contains(reason) && rest.ends_with("\nch.failed\nerr\ngone\nlist\ntried\n"), "{rest}");
    }
}

/// A process that the command leaves behind holds its standard output and standard error.
#[test]
fn job_whose_command_has_ended_well_is_done_although_a_process_stays_behind() {
    for timeout in ["", "--timeout 1"] {
        let script = format!(
            "{UNTIL} pipework serve {timeout} --drain 20 ch -- sh -c 'sleep 1000 & echo $! >> left
                cat >> tried; echo >> tried' 2> err & S=$!
            until pipework call --queue ch one two 2> gone; do :; done
            until_lines tried 2; kill $S; wait $S; echo $?; cat tried err; ls
            kill $(cat left) && echo 'both stay'"
        );
        let done = sh(&Folder::new(), &script);
        assert_eq!(done.out, "0\none\ntwo\nerr\ngone\nleft\ntried\nboth stay\n", "{timeout}: {done:?}");
    }
}

/// Without --grace a process of the first attempt would still run beside the second one.
#[test]
fn job_that_is_stopped_comes_back_when_its_processes_have_ended() {
    let script = format!(
        "{UNTIL} pipework serve --timeout 0.5 --grace 0.5 --attempts 2 ch -- sh -c 'job=$(cat); echo $job >> tried
            [ -e first ] || {{ : > first; (trap \"\" TERM; : > on; sleep 1000; :) & echo $! > left; sleep 1000; }}
            case $(cut -d \" \" -f 3 /proc/$(cat left)/stat 2> gone) in [RSD]) echo still >> tried;; esac; exit 0' 2> err & S=$!
        until pipework call --queue ch one 2> gone; do :; done
        until_lines tried 2; kill $S; wait $S; echo $?; cat tried"
    );
    let done = sh(&Folder::new(), &script);
    assert_eq!(done.out, "0\none\none\n", "{done:?}");
}

/// With --lines, a command dies before it has read any of the job. The next process gets the job;
/// after that it is retried like any other.
#[test]
fn job_that_no_process_reads_is_retried_and_then_set_aside() {
    let script = "pipework serve --lines --attempts 1 ch -- false 2> err & S=$!
        until pipework call --queue ch unread 2> gone; do :; done
        until ls ch.failed/*-* > list 2> gone; do sleep 0.02; done; kill $S; wait $S; echo $?; cat $(cat list)";
    assert_eq!(clean(script), "0\nunread");
}

/// The folder for failed jobs cannot be made: the job is lost, and the server ends with a status.
#[test]
fn serve_fails_if_it_cannot_set_a_job_aside() {
    let script = "printf stranger > ch.failed
        pipework serve --attempts 1 ch -- sh -c 'echo >> tried; exit 1' 2> err & S=$!
        until pipework call --queue ch one 2> gone; do :; done
        until grep -q 'it is lost' err; do sleep 0.02; done; kill $S; wait $S; echo $?
        grep -c 'job \"one\".*it comes back, for it cannot be set aside' err; tail -n 1 err; cat ch.failed";
    assert_eq!(clean(script), "1\n3\npipework: 1 job lost\nstranger");
}

/// A caller opens the channel before its server checks for other users, and then sends a job.
#[test]
fn job_sent_while_the_server_leaves_keeps_the_channel() {
    let folder = Folder::new();
    let path = folder.join("ch");
    for _ in 0..5 {
        let mut server = shell(&folder, "exec pipework serve ch -- cat").spawn().unwrap();
        wait_until("it serves", || Options::new().open(&path).is_ok_and(|segment| has_server(&segment)));
        let held = File::open(&path).unwrap();
        send_signal(server.id(), Signal::TERM);
        // By its number: a segment was mapped before it had a name.
        let (maps, inode) =
            (format!("/proc/{}/maps", server.id()), held.metadata().unwrap().ino().to_string());
        let is_mapped = |maps: &str| maps.lines().any(|line| line.split_whitespace().nth(4) == Some(&inode));
        wait_until("it has left", || !is_mapped(&fs::read_to_string(&maps).unwrap_or_default()));
        assert_eq!(sh(&folder, "pipework call --queue ch left").status, Some(0));
        drop(held);
        assert!(server.wait().unwrap().success());
        let segment = Options::new().open(&path).expect("a job is in it");
        assert_eq!(segment.calls().count(), 1);
        drop(segment);
        fs::remove_file(&path).unwrap();
    }
}

fn has_server(segment: &Segment) -> bool {
    segment.members().unwrap().iter().any(|member| member.role == Role::Server)
}

#[test]
fn serve_does_not_remove_a_channel_with_jobs() {
    // The only worker is busy. The waiting jobs outlive it, and its own job returns to the queue.
    let script = format!(
        "{UNTIL} pipework serve --grace 0.1 ch -- sh -c 'cat >> begun; echo >> begun; exec sleep 1000' 2> err & S=$!
        until pipework call --queue ch 1 2> gone; do :; done; until_lines begun 1; pipework call --queue ch 2 3
        kill $S; sleep 1.1; kill $S; wait $S; echo $?; grep -o '. jobs wait' err
        pipework doctor --yes ch | grep -c 3.requests
        pipework serve ch -- sh -c 'cat >> done; echo >> done' & S=$!; until_lines done 3; kill $S; wait $S; sort done"
    );
    assert_eq!(clean(&script), "0\n3 jobs wait\n1\n1\n2\n3\n");
}

#[test]
fn queue_refuses_a_job_when_the_channel_is_full() {
    let serve = "pipework serve --slots 2 --request-bytes 100 ch -- sleep 1000 2> err & S=$!
        until pipework call --queue ch 1 2> gone; do :; done; pipework call --queue ch 2;";
    // The channel is full.
    let full = "pipework call --queue --timeout 0.1 ch 3; R=$?; kill -9 $S; exit $R";
    fails(124, &["the channel did not take the job in time"], &format!("{serve} {full}"));
    fails(5, &["no such channel"], "pipework call --queue ch 1");
    fails(2, &["--attempts"], "pipework serve --attempts 4 ch -- cat");
}

//! Settings of the system that matter to pipes and segments, each with its meaning for the user.

use crate::failure::words;
use crate::progress::{grouped, size};
use crate::sys;
use pipework::reqrep::{self, Options};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    /// Worth to know.
    Note,
    /// Something will fail.
    Problem,
}

impl Level {
    pub(super) fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }
}

/// A finding.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) level: Level,
    pub(super) value: String,
    /// For the user, in one sentence.
    pub(super) meaning: String,
}

/// Everything that is examined.
pub(super) fn checks() -> Vec<Check> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    let cgroups = read("/proc/self/cgroup");
    vec![
        kernel(read("/proc/sys/kernel/osrelease").trim()),
        call(),
        deaths(reqrep::hears_of_deaths()),
        filter(&status),
        shared_memory(Path::new("/dev/shm")),
        new_pipe(),
        pages(
            "pipe-user-pages-soft",
            &read("/proc/sys/fs/pipe-user-pages-soft"),
            "new pipes hold two pages only, and writers wait more often",
        ),
        pages("pipe-user-pages-hard", &read("/proc/sys/fs/pipe-user-pages-hard"), "no pipe can be made"),
        processors(thread::available_parallelism().map_or(1, usize::from)),
        quota(&cgroups, Path::new("/sys/fs/cgroup")),
        descriptors(sys::descriptor_limits()),
    ]
}

fn check(name: &'static str, level: Level, value: impl Into<String>, meaning: impl Into<String>) -> Check {
    Check { name, level, value: value.into(), meaning: meaning.into() }
}

fn kernel(release: &str) -> Check {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (level, meaning) = match version {
        (0, _) => (Level::Note, "its version is not known"),
        (6, 18..) | (7.., _) => (Level::Ok, "everything that pipework uses is there"),
        (6, 5..) => (Level::Ok, "before 6.18, each write to a pipe costs a little more to keep SIGPIPE away"),
        (5, 10..) | (6, _) => {
            (Level::Ok, "before 6.5, an end that must not wait opens its pipe once more, by way of /proc")
        }
        _ => (Level::Note, "pipework is made for Linux 5.10 and later, and not tried with this one"),
    };
    check("kernel", level, release, meaning)
}

/// Whether calls work at all, here and now: shared memory, locks and futexes.
fn call() -> Check {
    const LIMIT: Duration = Duration::from_secs(5);
    let called = || -> pipework::Result<Duration> {
        let segment = Options::new().slots(1).members(2).anonymous()?;
        let (server, client) = (segment.server()?, segment.client()?);
        let answers =
            thread::spawn(move || server.recv(LIMIT).and_then(|request| request.reply(b"")).map(drop));
        let begin = Instant::now();
        let answered = client.call("", LIMIT).map(drop).map_err(pipework::Error::from);
        let took = begin.elapsed();
        answers.join().unwrap_or(Ok(())).and(answered).map(|()| took)
    };
    match called() {
        Ok(took) => {
            let value = format!("answered in {:.0} us", took.as_secs_f64() * 1e6);
            check(
                "call",
                Level::Ok,
                value,
                "shared memory, locks and futexes work for a call between threads",
            )
        }
        Err(error) => {
            let meaning =
                "no channel works here; a filter of system calls (seccomp) may forbid futex, memfd or fcntl";
            check("call", Level::Problem, words(error), meaning)
        }
    }
}

fn deaths(are_reported: bool) -> Check {
    const NAME: &str = "news of deaths";
    if are_reported {
        return check(NAME, Level::Ok, "at once", "the kernel tells a waiting process when another one dies");
    }
    let meaning =
        "no inotify instance is left (sysctl fs.inotify.max_user_instances), or PIPEWORK_DEATH_THREAD is off";
    check(NAME, Level::Note, "within 250 ms", meaning)
}

fn filter(status: &str) -> Check {
    let field = |name: &str| status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
    match field("Seccomp:") {
        Some("0") => check("seccomp", Level::Ok, "off", "system calls are not filtered"),
        Some(mode @ ("1" | "2")) => {
            let meaning = "system calls are filtered, as in most containers; what pipework cannot use it replaces or reports";
            check("seccomp", Level::Note, format!("mode {mode}"), meaning)
        }
        _ => check("seccomp", Level::Note, "unknown", "whether system calls are filtered is not shown"),
    }
}

fn shared_memory(place: &Path) -> Check {
    const NAME: &str = "/dev/shm";
    let space = match sys::space(place) {
        Ok(space) => space,
        Err(error) => {
            return check(
                NAME,
                Level::Problem,
                words(error),
                "channels need another folder, best one in memory",
            );
        }
    };
    let value = format!("{} free of {}", size(space.free), size(space.total));
    let (level, meaning) = match space {
        sys::Space { is_read_only: true, .. } => {
            (Level::Problem, "it is read-only: no channel can be made here")
        }
        // The size of a channel with default options.
        sys::Space { free: ..2_200_000, .. } => (
            Level::Problem,
            "it is full: a channel cannot be made, and `pipework ls` shows what takes the space",
        ),
        sys::Space { is_in_memory: false, .. } => {
            (Level::Note, "it is not in memory: channels there are written to a disk")
        }
        sys::Space { total: ..=67_108_864, .. } => (
            Level::Note,
            "it is small, as containers have it: `docker run --shm-size` gives more, or fewer slots take less",
        ),
        _ => (Level::Ok, "there is space for channels"),
    };
    check(NAME, level, value, meaning)
}

fn new_pipe() -> Check {
    let capacity = std::io::pipe().map(|(reader, _)| sys::capacity(&reader).unwrap_or(0));
    match capacity {
        Err(error) => check("pipe", Level::Problem, words(error), "no pipe can be made"),
        // Sixteen pages, unless the user has too many already.
        Ok(capacity) if capacity < 16 * rustix::param::page_size() as u64 => {
            let meaning = "the pipes of this user hold too many pages together, so a new one is small, and writers wait more often";
            check("pipe", Level::Problem, format!("a new one holds {}", size(capacity)), meaning)
        }
        Ok(capacity) => check(
            "pipe",
            Level::Ok,
            format!("a new one holds {}", size(capacity)),
            "pipes have their usual size",
        ),
    }
}

fn pages(name: &'static str, text: &str, beyond: &str) -> Check {
    match text.trim().parse::<u64>() {
        Ok(0) => check(name, Level::Ok, "0", "there is no such limit for the pipes of a user"),
        Ok(pages) => {
            let value = format!(
                "{} pages, {}",
                grouped(pages),
                size(pages.saturating_mul(rustix::param::page_size() as u64))
            );
            let level = if pages < 1024 { Level::Note } else { Level::Ok };
            check(name, level, value, format!("beyond that, for all pipes of a user together, {beyond}"))
        }
        Err(_) => check(name, Level::Note, "unknown", "this limit for the pipes of a user is not shown"),
    }
}

fn processors(number: usize) -> Check {
    match number {
        1 => check(
            "CPUs",
            Level::Note,
            "1",
            "caller and server take turns on it: each call costs two changes of process, and neither spins",
        ),
        _ => check("CPUs", Level::Ok, number.to_string(), "callers and servers run at the same time"),
    }
}

/// The smallest share of CPU time that the control groups of this process leave to it: `cpu.max` of
/// each of them in version 2, `cpu.cfs_quota_us` in version 1.
fn quota(cgroups: &str, mounted: &Path) -> Check {
    let mut least: Option<f64> = None;
    for line in cgroups.lines() {
        // cgroups(7): number, controllers, path.
        let [_, controllers, path] = line.splitn(3, ':').collect::<Vec<_>>()[..] else { continue };
        let is_of_cpu = controllers.split(',').any(|name| name == "cpu");
        if !controllers.is_empty() && !is_of_cpu {
            continue;
        }
        let base = match controllers.is_empty() {
            // Beside the hierarchies of version 1, that of version 2 has a folder of its own.
            true => [mounted.join("unified"), mounted.into()].into_iter().find(|base| base.is_dir()),
            false => [mounted.join(controllers), mounted.join("cpu")].into_iter().find(|base| base.is_dir()),
        };
        let Some(base) = base else { continue };
        let inside = base.join(path.trim_start_matches('/'));
        for group in inside.ancestors().take_while(|group| group.starts_with(&base)) {
            if let Some(share) = share(group) {
                least = Some(least.map_or(share, |least| least.min(share)));
            }
        }
    }
    match least {
        None => check("CPU quota", Level::Ok, "none", "no control group limits the CPU time of this process"),
        Some(cpus) => {
            let meaning = "a process that has used it up is stopped for the rest of each period, often 100 ms: such pauses look like slow calls, and are no deaths";
            check("CPU quota", Level::Note, format!("{cpus:.2} CPUs"), meaning)
        }
    }
}

/// CPUs that one control group leaves, if it limits them.
fn share(group: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let words = read("cpu.max").or_else(|| {
        Some(format!("{} {}", read("cpu.cfs_quota_us")?.trim(), read("cpu.cfs_period_us")?.trim()))
    })?;
    let mut numbers = words.split_ascii_whitespace().map(|word| word.parse::<f64>().ok());
    // "max" is no number, and -1 no limit.
    let (quota, period) = (numbers.next()??, numbers.next()??);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

fn descriptors((soft, hard): (Option<u64>, Option<u64>)) -> Check {
    let words = |limit: Option<u64>| limit.map_or("none".into(), grouped);
    let value = format!("{} (hard {})", words(soft), words(hard));
    match soft {
        Some(..256) => {
            let meaning = "few: a channel takes two descriptors of each member's process, a command of `pipework run` three";
            check("RLIMIT_NOFILE", Level::Note, value, meaning)
        }
        _ => check(
            "RLIMIT_NOFILE",
            Level::Ok,
            value,
            "enough descriptors for a process with hundreds of pipes and channels",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_return_ok_only_for_good_values() {
        let levels = ["6.18.44-x", "6.1", "5.10.0-8-amd64", "5.4.0", ""].map(|release| kernel(release).level);
        assert_eq!(levels, [Level::Ok, Level::Ok, Level::Ok, Level::Note, Level::Note]);
        assert_eq!(call().level, Level::Ok);
        assert_eq!((deaths(true).level, deaths(false).level), (Level::Ok, Level::Note));
        assert_eq!(filter("Name:\tx\nSeccomp:\t2\n").value, "mode 2");
        assert_eq!((filter("Seccomp:\t0\n").level, filter("").level), (Level::Ok, Level::Note));
        assert_eq!(shared_memory(Path::new("/no/such/folder")).level, Level::Problem);
        assert_eq!((pages("x", "0\n", "").level, pages("x", "64\n", "").level), (Level::Ok, Level::Note));
        assert!(pages("x", "16384", "y").value.starts_with("16,384 pages, "));
        assert_eq!(descriptors((Some(64), None)).level, Level::Note);
        assert_eq!(descriptors((Some(1024), Some(4096))).value, "1,024 (hard 4,096)");
        assert_eq!((processors(1).level, processors(2).level), (Level::Note, Level::Ok));
    }

    #[test]
    fn quota_is_the_smallest_of_both_cgroup_versions() {
        let root = std::env::temp_dir().join(format!("pipework-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        // Version 2 alone: the limit of a group further out counts, too.
        write("two/a/cpu.max", "50000 100000\n");
        write("two/a/b/cpu.max", "max 100000\n");
        assert_eq!(quota("0::/a/b\n", &root.join("two")).value, "0.50 CPUs");
        assert_eq!(quota("0::/c\n", &root.join("two")).value, "none");
        // Both: the controller is in one of version 1.
        write("one/cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n");
        write("one/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
        write("one/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
        write("one/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
        write("one/unified/cgroup.procs", "");
        let cgroups = "4:cpu,cpuacct:/a\n3:cpuset:/a\n0::/\n";
        assert_eq!(quota(cgroups, &root.join("one")).value, "1.50 CPUs");
        assert_eq!(quota("garbage\n:::\n", &root.join("one")).value, "none");
        fs::remove_dir_all(&root).unwrap();
    }
}

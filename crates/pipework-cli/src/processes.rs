//! The processes in /proc: their names, and the files that they have open.
//!
//! The files themselves are not touched: the target of a descriptor is read from the process, and
//! only if the number of the inode fits is the file asked which one it is. An ordinary user cannot
//! see the files of other users' processes, nor processes of another pid namespace.

use crate::sys::is_shortage;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Which file it is: device and inode.
pub(crate) type FileId = (u64, u64);

/// A descriptor of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The process.
    pub(crate) id: i32,
    /// The descriptor's number there.
    pub(crate) number: i32,
    /// Neither this nor the next: it holds the file without having opened it for data, as processes
    /// do that wait for the other end of a FIFO.
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Use {
    /// Its path in /proc.
    pub(crate) fn path(self) -> PathBuf {
        format!("/proc/{}/fd/{}", self.id, self.number).into()
    }
}

/// The processes that have files open, except this one.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    found: HashMap<FileId, Vec<Use>>,
    /// Processes that do not show their files to this user.
    pub(crate) hidden: usize,
}

impl Uses {
    /// Asks all processes about `files`; fails if /proc cannot be read, for then no process is
    /// seen.
    pub(crate) fn of(files: &HashSet<FileId>) -> io::Result<Self> {
        let mut uses = Self::default();
        if files.is_empty() {
            return Ok(uses);
        }
        uses.hidden += usize::from(hides_processes());
        let inodes: HashSet<u64> = files.iter().map(|file| file.1).collect();
        let own = std::process::id() as i32;
        for id in all()?.filter(|id| *id != own) {
            match uses.add(id, files, &inodes) {
                Err(error) if is_shortage(&error) => return Err(error),
                // It has ended.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(_) => uses.hidden += 1,
                Ok(()) => {}
            }
        }
        Ok(uses)
    }

    /// The processes that have this one open.
    pub(crate) fn at(&self, file: FileId) -> &[Use] {
        self.found.get(&file).map_or(&[], Vec::as_slice)
    }

    fn add(&mut self, id: i32, files: &HashSet<FileId>, inodes: &HashSet<u64>) -> io::Result<()> {
        for number in descriptors(id)? {
            // It may be closed by now.
            let Some(open) = Open::read(id, number)? else { continue };
            if open.inode.is_some_and(|inode| !inodes.contains(&inode)) {
                continue;
            }
            let found = Use { id, number, reads: open.reads, writes: open.writes };
            if let Some(file) = file_of(found).filter(|file| files.contains(file)) {
                self.found.entry(file).or_default().push(found);
            }
        }
        Ok(())
    }
}

/// An open file, as the kernel describes it without a look at the file.
struct Open {
    /// Kernels before 5.14 do not say.
    inode: Option<u64>,
    reads: bool,
    writes: bool,
}

impl Open {
    /// None if it is closed by now.
    fn read(id: i32, number: i32) -> io::Result<Option<Self>> {
        match fs::read_to_string(format!("/proc/{id}/fdinfo/{number}")) {
            Err(error) if is_shortage(&error) => Err(error),
            text => Ok(text.ok().and_then(|text| Self::parse(&text))),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()));
        let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
        // O_RDONLY, O_WRONLY, O_RDWR; the value behind them is a path that was not opened for data.
        let (reads, writes) = match flags & 0o3 {
            _ if flags & libc::O_PATH as u32 != 0 => (false, false),
            0 => (true, false),
            1 => (false, true),
            _ => (true, true),
        };
        Some(Self { inode: field("ino:").and_then(|inode| inode.parse().ok()), reads, writes })
    }
}

/// The pipes and FIFOs that a process has open, in the order of its descriptors.
pub(crate) fn pipes(id: i32) -> io::Result<Vec<(Use, FileId)>> {
    let mut pipes = vec![];
    for number in descriptors(id)? {
        let Some(Open { reads, writes, .. }) = Open::read(id, number)? else { continue };
        if !reads && !writes {
            continue;
        }
        let found = Use { id, number, reads, writes };
        let is_pipe = fs::metadata(found.path()).is_ok_and(|found| found.file_type().is_fifo());
        if let Some(file) = is_pipe.then(|| file_of(found)).flatten() {
            pipes.push((found, file));
        }
    }
    pipes.sort_by_key(|(found, _)| found.number);
    Ok(pipes)
}

/// Processes with a thread that waits until another process opens the other end of this FIFO. No list has
/// them; but where a thread waits in the kernel is shown, and to some also what it has asked for.
/// If it is not, the FIFO may be this one.
pub(crate) fn waiting_for(fifo: FileId) -> io::Result<Vec<i32>> {
    let waits = |id: &i32| {
        let threads = fs::read_dir(format!("/proc/{id}/task")).into_iter().flatten().flatten();
        threads.into_iter().any(|thread| {
            let thread = thread.path();
            let is_opening =
                || fs::read_to_string(thread.join("wchan")).is_ok_and(|place| place == "wait_for_partner");
            opening(&thread).map_or_else(is_opening, |file| file == fifo)
        })
    };
    Ok(all()?.filter(waits).collect())
}

/// Which file a thread is about to open, if it shows that.
fn opening(thread: &Path) -> Option<FileId> {
    // proc_pid_syscall(5): the number of the call, then its arguments.
    let call = fs::read_to_string(thread.join("syscall")).ok()?;
    let mut words = call.split_ascii_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let mut arguments = words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    if number != libc::SYS_openat {
        return None;
    }
    let (folder, name) = (arguments.next()?? as i32, arguments.next()??);
    let mut bytes = [0; libc::PATH_MAX as usize];
    let len = File::open(thread.join("mem")).ok()?.read_at(&mut bytes, name).ok()?;
    let name = Path::new(OsStr::from_bytes(bytes[..len].split(|byte| *byte == 0).next()?));
    let folder = match folder {
        _ if name.is_absolute() => thread.join("root"),
        libc::AT_FDCWD => thread.join("cwd"),
        number => thread.join(format!("fd/{number}")),
    };
    let facts = fs::metadata(folder.join(name.strip_prefix("/").unwrap_or(name))).ok()?;
    Some((facts.dev(), facts.ino()))
}

/// Whether the process has the file open; `None` if it does not show that.
pub(crate) fn has_open(id: i32, file: FileId) -> Option<bool> {
    let mut uses = Uses::default();
    let (files, inodes) = (HashSet::from([file]), HashSet::from([file.1]));
    uses.add(id, &files, &inodes).ok().map(|()| !uses.at(file).is_empty())
}

/// A process, but for this one, that has a file open which has no name, and for which `is_it` holds at
/// its path in /proc; and how many processes do not show all their files.
pub(crate) fn with_unnamed_file(
    is_it: impl Fn(&Path) -> io::Result<bool>,
) -> io::Result<(Option<i32>, usize)> {
    let mut hidden = usize::from(hides_processes());
    let own = std::process::id() as i32;
    for id in all()?.filter(|id| *id != own) {
        let numbers = match descriptors(id) {
            Ok(numbers) => numbers,
            Err(error) if is_shortage(&error) => return Err(error),
            Err(error) => {
                hidden += usize::from(error.kind() != io::ErrorKind::NotFound);
                continue;
            }
        };
        for number in numbers {
            let path = PathBuf::from(format!("/proc/{id}/fd/{number}"));
            let has_no_name = fs::read_link(&path).is_ok_and(|target| {
                let target = target.as_os_str().as_bytes();
                target.starts_with(b"/memfd:") || target.ends_with(b" (deleted)")
            });
            if !has_no_name || !fs::metadata(&path).is_ok_and(|facts| facts.is_file()) {
                continue;
            }
            match is_it(&path) {
                Ok(true) => return Ok((Some(id), hidden)),
                Ok(false) => {}
                Err(error) if is_shortage(&error) => return Err(error),
                Err(error) => hidden += usize::from(error.kind() != io::ErrorKind::NotFound),
            }
        }
    }
    Ok((None, hidden))
}

/// Whether /proc leaves out processes of other users, as with its mount option hidepid.
fn hides_processes() -> bool {
    let is_root = crate::sys::user() == 0;
    !is_root && fs::read_to_string("/proc/self/mountinfo").is_ok_and(|mounts| hides(&mounts))
}

/// The same, as mountinfo says it; proc_pid_mountinfo(5).
fn hides(mounts: &str) -> bool {
    // The last one mounted there is visible.
    let proc = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let options = proc.and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
    let hidepid = options.split(',').find_map(|option| option.strip_prefix("hidepid="));
    hidepid.is_some_and(|value| !matches!(value, "0" | "off"))
}

/// A process's command line, or its name in brackets where that is empty; `None` if it is gone.
pub(crate) fn command(id: i32) -> Option<String> {
    let line = fs::read(format!("/proc/{id}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word));
    let line = words.collect::<Vec<_>>().join(" ");
    match line.trim() {
        "" => fs::read_to_string(format!("/proc/{id}/comm")).ok().map(|name| format!("[{}]", name.trim())),
        line => Some(line.into()),
    }
}

/// When a process was started, on the clock of today; `None` if it is gone.
pub(crate) fn started(id: i32) -> Option<SystemTime> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // proc_pid_stat(5): the name, in brackets, may hold anything; the 20th word behind it is when
    // it was started, in ticks since the system was.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()?;
    let system = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    let since_boot = ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(boot) + Duration::from_secs_f64(since_boot))
}

fn all() -> io::Result<impl Iterator<Item = i32>> {
    let entries = fs::read_dir("/proc")?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn descriptors(id: i32) -> io::Result<impl Iterator<Item = i32>> {
    let entries = fs::read_dir(format!("/proc/{id}/fd"))?.flatten();
    Ok(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn file_of(found: Use) -> Option<FileId> {
    fs::metadata(found.path()).ok().map(|file| (file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn uses_finds_the_open_files_of_a_child() {
        let (reader, writer) = std::io::pipe().unwrap();
        let file = crate::sys::file_id(&reader).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").stdin(reader).spawn().unwrap();
        let id = child.id() as i32;
        // A child that another test starts has all files of this process until it runs its program.
        let of_child = || {
            let uses = Uses::of(&HashSet::from([file])).unwrap();
            uses.at(file).iter().copied().filter(|found| found.id == id).collect::<Vec<_>>()
        };
        let found = of_child();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(writer);
        assert_eq!(found, [Use { id, number: 0, reads: true, writes: false }]);
        assert_eq!(of_child(), []);
    }

    #[test]
    fn hides_detects_hidepid_options() {
        let root = "22 1 0:20 / / rw - ext4 /dev/sda rw";
        let mount = |options: &str| format!("{root}\n25 22 0:23 / /proc rw,nosuid - proc proc {options}\n");
        assert!(!hides(root) && !hides(&mount("rw")) && !hides(&mount("rw,hidepid=0")));
        for options in ["rw,hidepid=2", "rw,gid=4,hidepid=invisible", "rw,hidepid=ptraceable"] {
            assert!(hides(&mount(options)), "{options}");
        }
    }

    fn id() -> i32 {
        std::process::id() as i32
    }

    #[test]
    fn pipes_and_start_time_of_this_process_are_found() {
        let (reader, writer) = io::pipe().unwrap();
        let found: Vec<_> = pipes(id()).unwrap().into_iter().map(|(found, _)| found).collect();
        let end = |number, reads| Use { id: id(), number, reads, writes: !reads };
        assert!(found.contains(&end(reader.as_raw_fd(), true)), "{found:?}");
        assert!(found.contains(&end(writer.as_raw_fd(), false)), "{found:?}");
        let (_, file) =
            pipes(id()).unwrap().into_iter().find(|(found, _)| found.number == reader.as_raw_fd()).unwrap();
        assert_eq!(has_open(id(), file), Some(true));
        drop((reader, writer));
        assert_eq!(has_open(id(), file), Some(false));
        let age = SystemTime::now().duration_since(started(id()).unwrap()).unwrap_or_default();
        assert!(age < Duration::from_secs(3600), "{age:?}");
        assert!(command(id()).unwrap().contains("pipework"));
    }
}

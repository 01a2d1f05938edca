//! Which module may use which, and in which order they are declared.

use std::fs;

use super::lexer::{code, first_word, flat_uses, names_whole, numbered, without_tests};
use super::{
    C_LIBRARY, COMMAND, CORE, Fault, File, MODULE_STANDS_ON, NODE, ORDER, PUBLIC_MODULES, PYTHON, hold, root,
};

#[test]
fn modules_use_only_earlier_modules() {
    fn may_use(user: &str, used: &str) -> bool {
        let place = |name| ORDER.iter().position(|module| *module == name);
        let are_public = PUBLIC_MODULES.contains(&user) && PUBLIC_MODULES.contains(&used);
        place(used) <= place(user)
            && (!are_public || user == used || MODULE_STANDS_ON.contains(&(user, used)))
    }
    fn rule(file: &File) -> Vec<Fault> {
        let Some(path) = file.in_core() else { return vec![] };
        let user = path.split(['/', '.']).next().unwrap_or(path);
        if !ORDER.contains(&user) {
            return vec![(
                1,
                format!("module `{user}` has no place in the reading order (ORDER, ARCHITECTURE.md)"),
            )];
        }
        let code = flat_uses(&without_tests(&code(&file.text)));
        let mut faults = vec![];
        for (number, line) in numbered(&code) {
            for used in line.match_indices("crate::").map(|(at, root)| first_word(&line[at + root.len()..])) {
                if !ORDER.contains(&used) {
                    faults.push((
                        number,
                        format!("`crate::{used}`: name it through the module that it comes from"),
                    ));
                } else if !may_use(user, used) {
                    faults.push((
                        number,
                        format!("`{user}` must not use `{used}`, which is declared after it or is another public module"),
                    ));
                }
            }
            let climbs =
                if path.contains('/') && !path.ends_with("mod.rs") { "super::super::" } else { "super::" };
            if line.contains(climbs) {
                faults.push((number, format!("`{climbs}` leaves the module: write `crate::`")));
            }
        }
        faults
    }
    let bad = [
        (CORE, "deadline.rs", "use crate::event::Event;"),
        (CORE, "pipe.rs", "use crate::{error::Error, fd};"),
        (CORE, "fd.rs", "fn f() -> crate::atomic::Reader {}"),
        (CORE, "reqrep/slot.rs", "use crate::atomic::frame;"),
        (CORE, "pipe.rs", "use crate::Error;"),
        (CORE, "pipe.rs", "use super::fd;"),
        (CORE, "atomic/reader.rs", "use super::super::pipe;"),
        (CORE, "thing.rs", ""),
    ];
    let good = [
        (CORE, "atomic/reader.rs", "use crate::{error::Error, fd::PipeEnd, sys};\nuse super::frame;"),
        (CORE, "pipe.rs", "use crate::event;\n#[cfg(test)]\nmod tests {\n    use super::*;\n}"),
    ];
    hold(rule, &bad, &good);
}

/// A folder of sources: the modules that it declares, in their order, and the names that it
/// exports, each with its origin.
struct Folder {
    modules: Vec<String>,
    exports: Vec<(String, Vec<String>)>,
    /// Whether the file that declares the modules uses one of them itself, so that it comes after
    /// all of them. If it only exports names, it comes before them, and they may use its
    /// definitions.
    is_above: bool,
}

impl Folder {
    /// The folder of the module at `path` in a crate; `None` if it has none, except for tests.
    fn of(sources: &str, path: &[String]) -> Option<Folder> {
        let names = match &*path.join("/") {
            "" => ["lib.rs".into(), "main.rs".into()],
            path => [format!("{path}/mod.rs"), format!("{path}.rs")],
        };
        let text = names.iter().find_map(|name| fs::read_to_string(root().join(sources).join(name)).ok());
        text.map(|text| Folder::parsed(&text)).filter(|folder| !folder.modules.is_empty())
    }

    fn parsed(text: &str) -> Folder {
        let code = flat_uses(&without_tests(&code(text)));
        let mut folder = Folder { modules: vec![], exports: vec![], is_above: false };
        for (_, line) in numbered(&code) {
            if let Some((_, name)) = line.trim().strip_suffix(';').and_then(|line| line.split_once("mod ")) {
                folder.modules.push(name.into());
            } else {
                // A declaration of names has been spread into whole paths.
                let words = line.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
                let paths = words.filter(|word| word.contains("::")).map(segments);
                for path in paths.filter(|path| !path.is_empty()) {
                    folder.is_above |= folder.modules.contains(&path[0]) && !line.starts_with("pub");
                    folder.exports.extend(path.last().map(|name| (name.clone(), path.clone())));
                }
            }
        }
        folder
    }
}

/// The names in a path, without `self`.
fn segments(path: &str) -> Vec<String> {
    path.split("::").filter(|name| *name != "self").map(String::from).collect()
}

/// The module that a path names, or the origin of the name; `None` if that belongs to another
/// public module.
fn module_of(sources: &str, path: &[String]) -> Option<Vec<String>> {
    let mut module = vec![path.first()?.clone()];
    for name in &path[1..] {
        let Some(folder) = Folder::of(sources, &module) else { break };
        if folder.modules.contains(name) {
            module.push(name.clone());
        } else if let Some((_, from)) = folder.exports.iter().find(|(known, _)| known == name) {
            if !folder.modules.contains(&from[0]) {
                return None;
            }
            return module_of(sources, &[module, from.clone()].concat());
        } else {
            break;
        }
    }
    Some(module)
}

#[test]
fn files_of_a_folder_use_only_earlier_files() {
    fn rule(file: &File) -> Vec<Fault> {
        let sources = [CORE, COMMAND, C_LIBRARY, PYTHON, NODE]
            .into_iter()
            .find(|sources| file.path.starts_with(sources));
        let Some(sources) = sources.filter(|_| file.is_source()) else { return vec![] };
        let path = file.path[sources.len()..].strip_suffix(".rs").expect("it is a source file");
        let user: Vec<String> =
            path.strip_suffix("/mod").unwrap_or(path).split('/').map(String::from).collect();
        let (name, above) = user.split_last().expect("a path has a name");
        // At the top level, `ORDER` gives the order of the core.
        let is_held = sources != CORE || !above.is_empty();
        // Modules for tests only may use the whole public module.
        let declared = is_held.then(|| Folder::of(sources, above)).flatten().map(|folder| folder.modules);
        if !declared.is_some_and(|modules| modules.contains(name)) {
            return vec![];
        }
        let inside = if sources == CORE { format!("crate::{}::", user[0]) } else { "crate::".into() };
        let mut faults = vec![];
        for (number, line) in numbered(&flat_uses(&without_tests(&code(&file.text)))) {
            let end = |at: usize| line[at..].find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            let path_at = |at: usize| segments(&line[at..end(at).map_or(line.len(), |end| at + end)]);
            let near =
                line.match_indices("super::").map(|(at, word)| [above, &path_at(at + word.len())].concat());
            let far = line.match_indices(&inside).map(|(at, _)| path_at(at + "crate::".len()));
            for used in near.chain(far).filter_map(|path| module_of(sources, &path)) {
                if let Some(why) = stands_after(sources, &user, &used) {
                    faults.push((number, why));
                }
            }
        }
        faults
    }
    /// The fault if `user` uses `used`.
    fn stands_after(sources: &str, user: &[String], used: &[String]) -> Option<String> {
        let common = user.iter().zip(used).take_while(|(one, two)| one == two).count();
        let folder = Folder::of(sources, &user[..common])?;
        let (Some(one), Some(two)) = (user.get(common), used.get(common)) else {
            let is_fault = user.len() > used.len() && folder.is_above;
            return is_fault.then(|| format!("`{}` uses its files: none of them may use it", used.join("/")));
        };
        let place = |name| folder.modules.iter().position(|module| module == name);
        (place(two) > place(one)).then(|| format!("`{one}` must not use `{two}`, which is declared after it"))
    }
    let bad = [
        (CORE, "pipe/ring.rs", "use super::reader::Reader;"),
        (CORE, "pipe/ring.rs", "use super::{bell::Bell, Writer};"),
        (CORE, "pipe/bell.rs", "fn f() { crate::pipe::endpoint::endpoints() }"),
        (CORE, "atomic/writer.rs", "use super::Options;"),
        (CORE, "segment/recovery.rs", "use super::member::Membership;"),
        (CORE, "reqrep/slot.rs", "use crate::reqrep::Client;"),
        (CORE, "sys/net.rs", "use super::timed_fd::TimedFd;"),
        (CORE, "sys/file.rs", "use crate::sys::carrier;"),
        (COMMAND, "fifo.rs", "use crate::recv::recv;"),
        (C_LIBRARY, "bytes.rs", "use crate::reqrep::segment::pwk_segment;"),
        (C_LIBRARY, "reqrep/segment.rs", "use super::client::pwk_client;"),
        (COMMAND, "demo/pipe.rs", "use super::demo;"),
        (COMMAND, "run/job.rs", "use super::messages::Messages;"),
        (NODE, "error.rs", "use crate::inbox::Inbox;"),
        (PYTHON, "error.rs", "use crate::{imports::Import, wait::wait};"),
        (PYTHON, "reqrep/turns.rs", "use super::server::Request;"),
        (PYTHON, "fd/raw.rs", "use crate::fd::add_up;"),
        (PYTHON, "fd/sockets.rs", "use super::zeros;"),
    ];
    let good = [
        (CORE, "segment/watch/thread.rs", "use super::Topic;\nuse crate::segment::waiters::View;"),
        (CORE, "pipe/reader.rs", "use super::ring::{self, FILLED};\nuse super::endpoint::Endpoint;"),
        (CORE, "pipe/tokio.rs", "use super::{AsyncReader, Reader};"),
        (CORE, "pipe/mod.rs", "use reader::Reader;"),
        (CORE, "pipe/model.rs", "use super::pipe;"),
        (CORE, "fd/names.rs", "use super::CWD;"),
        (CORE, "sys/file.rs", "use super::{Errno, Result};"),
        (COMMAND, "recv.rs", "use crate::fifo::Turn;"),
        (COMMAND, "demo/pipe.rs", "use super::corpus::Corpus;\nuse crate::progress::grouped;"),
        (PYTHON, "pipe.rs", "use crate::fd::{add_up, borrow};"),
        (PYTHON, "reqrep/server.rs", "use super::{open::Open, turns::Requests};"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn pure_files_use_no_system_clock_or_thread() {
    fn rule(file: &File) -> Vec<Fault> {
        let opening = file.text.lines().take_while(|line| line.starts_with("//!"));
        if file.in_core().is_none() || !opening.into_iter().any(|line| names_whole(line, "Pure")) {
            return vec![];
        }
        let outside =
            ["std::fs", "std::io", "std::os", "std::process", "std::thread", "std::time", "std::env"];
        let mut faults = vec![];
        // Pure as well.
        let code = flat_uses(&without_tests(&code(&file.text))).replace("crate::segment::header", "");
        for (number, line) in numbered(&code) {
            let modules =
                ORDER.iter().filter(|module| **module != "error").map(|module| format!("crate::{module}"));
            let named = modules.chain(outside.map(String::from)).find(|path| names_whole(line, path));
            faults.extend(named.map(|path| (number, format!("a pure file has no business with `{path}`"))));
        }
        faults
    }
    let bad = [
        (CORE, "atomic/frame.rs", "//! Parts. Pure.\nuse crate::{error, sys};"),
        (CORE, "atomic/mixed.rs", "//! Text. Pure: it is fed.\nfn f() { std::thread::yield_now() }"),
        (CORE, "reqrep/word.rs", "//! A word. Pure.\nuse crate::segment::mapping::Shared;"),
    ];
    let good = [
        (CORE, "atomic/frame.rs", "//! Parts. Pure.\nuse crate::error::Result;\nuse super::item::WriterKey;"),
        (CORE, "atomic/reader.rs", "//! Reads.\nuse crate::sys;"),
        (CORE, "reqrep/word.rs", "//! A word. Pure.\nuse crate::segment::header::MAX_MEMBERS;"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn layer_of_shared_files_names_no_module_above_it() {
    /// Comments and texts count as well: what they say would hold for one module only.
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.starts_with(&format!("{CORE}segment/")) {
            return vec![];
        }
        let found = numbered(&file.text).filter(|(_, line)| line.contains("reqrep"));
        found.map(|(number, _)| (number, "the layer knows no module above it: be handed it".into())).collect()
    }
    let bad = [
        (CORE, "segment/deaths.rs", "use crate::reqrep::Client;"),
        (CORE, "segment/mapping.rs", "const OP: &str = \"reqrep open\";"),
        (CORE, "segment/watch/thread.rs", "// As reqrep does."),
        (CORE, "segment/FILE.md", "The ring of `reqrep` comes next."),
    ];
    let good = [
        (CORE, "segment/deaths.rs", "use super::member::Membership;"),
        (CORE, "reqrep/shared.rs", "const OPERATIONS: Operations = operations!(\"reqrep\");"),
    ];
    hold(rule, &bad, &good);
}

#[test]
fn modules_are_declared_in_reading_order() {
    fn rule(file: &File) -> Vec<Fault> {
        if file.path != format!("{CORE}lib.rs") {
            return vec![];
        }
        let code = code(&file.text);
        let declared = numbered(&code).filter_map(|(number, line)| {
            let name = line.trim().strip_suffix(';')?.split_once("mod ")?.1;
            Some((number, ORDER.iter().position(|module| *module == name)?))
        });
        let mut last = 0;
        let mut faults = vec![];
        for (number, place) in declared {
            if place < last {
                faults.push((number, format!("`{}` is declared after `{}`", ORDER[place], ORDER[last])));
            }
            last = place;
        }
        faults
    }
    let bad = [(CORE, "lib.rs", "mod deadline;\npub mod atomic;\nmod error;")];
    let good = [(CORE, "lib.rs", "mod error;\nmod deadline;\n#[cfg(fuzzing)]\npub mod fuzzing;")];
    hold(rule, &bad, &good);
}

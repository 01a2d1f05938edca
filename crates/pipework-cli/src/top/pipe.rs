//! Pipes and FIFOs: how full they are, and which processes have them open.

use crate::failure::words;
use crate::pipes::{self, Fill};
use crate::processes::{self, FileId, Use, Uses};
use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The pipe to watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Fifo(PathBuf),
    /// All pipes of a process.
    Process(i32),
}

/// The facts shown about a pipe.
#[derive(Clone, Debug)]
pub(super) struct Pipe {
    /// The path of a FIFO, or where a process has the pipe.
    pub(super) name: String,
    pub(super) path: Option<PathBuf>,
    /// The descriptor by which it was found.
    pub(super) found: Option<(i32, i32)>,
    /// Why it has no other facts.
    pub(super) fault: Option<String>,
    /// None if it cannot be asked.
    pub(super) fill: Option<Fill>,
    pub(super) uses: Vec<Use>,
}

impl Pipe {
    pub(super) fn readers(&self) -> usize {
        self.uses.iter().filter(|found| found.reads).count()
    }

    pub(super) fn writers(&self) -> usize {
        self.uses.iter().filter(|found| found.writes).count()
    }
}

/// The facts about these now. All of /proc is read for it, once.
pub(super) fn look(sources: &[Source]) -> Vec<Pipe> {
    let mut found: Vec<(Pipe, Option<FileId>)> = vec![];
    for source in sources {
        match source {
            Source::Fifo(path) => {
                let file = fifo(path);
                let fault = file.is_none().then(|| "gone".into());
                let name = path.to_string_lossy().into_owned();
                found.push((
                    Pipe { name, path: Some(path.clone()), found: None, fault, fill: None, uses: vec![] },
                    file,
                ));
            }
            Source::Process(id) => found.extend(of_process(*id)),
        }
    }
    let uses = Uses::of(&found.iter().filter_map(|(_, file)| *file).collect());
    let (uses, fault) = match uses {
        Ok(uses) => (uses, None),
        Err(error) => (Uses::default(), Some(format!("/proc: {}", words(error)))),
    };
    let mut fills: HashMap<FileId, Option<Fill>> = HashMap::new();
    for (pipe, file) in &mut found {
        let Some(file) = *file else { continue };
        pipe.fault.clone_from(&fault);
        pipe.uses = uses.at(file).to_vec();
        pipe.fill = *fills.entry(file).or_insert_with(|| pipes::fill(file, &pipe.uses));
    }
    found.into_iter().map(|(pipe, _)| pipe).collect()
}

/// Which file the FIFO at a path is, if one is there.
pub(super) fn fifo(path: &Path) -> Option<FileId> {
    let there = path.metadata().ok().filter(|there| there.file_type().is_fifo())?;
    Some((there.dev(), there.ino()))
}

fn of_process(id: i32) -> Vec<(Pipe, Option<FileId>)> {
    let pipe = |found: Option<Use>, fault| Pipe {
        name: found.map_or_else(|| id.to_string(), |found| format!("{id} fd {}", found.number)),
        path: None,
        found: found.map(|found| (id, found.number)),
        fault,
        fill: None,
        uses: vec![],
    };
    match processes::pipes(id) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            vec![(pipe(None, Some("gone".into())), None)]
        }
        Err(error) => vec![(pipe(None, Some(error.to_string())), None)],
        Ok(pipes) if pipes.is_empty() => vec![(pipe(None, Some("no pipe is open".into())), None)],
        Ok(pipes) => pipes.into_iter().map(|(found, file)| (pipe(Some(found), None), Some(file))).collect(),
    }
}

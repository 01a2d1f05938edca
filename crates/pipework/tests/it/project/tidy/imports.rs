//! The files of the Python package import each other without a circle. (`order.rs` checks the same
//! for the compiled half.)

use std::collections::{BTreeMap, BTreeSet};

use super::lexer::first_word;
use super::{File, tree};

const PACKAGE: &str = "python/pipework/";

#[test]
fn python_modules_import_without_a_circle() {
    let init = File::sample("python/pipework/__init__.py", "from .fd import copy\nimport os\n");
    let text = "\"\"\"\n>>> import pipework\n\"\"\"\nfrom . import _core, _errors";
    let fd = File::sample("python/pipework/fd.py", text);
    let errors = |text| File::sample("python/pipework/_errors.py", text);
    assert_eq!(circle(&[&init, &fd, &errors("\"\"\"import pipework.fd\n\"\"\"\n")]), None);
    let bad = [
        "from .fd import copy",
        "from . import (\n    _core,\n    fd,\n)",
        "from . import Error",
        "if TYPE_CHECKING:\n    import pipework.fd",
        "from pipework import fd",
        "from pipework.fd import copy",
        "import pipework",
    ];
    for text in bad {
        assert!(circle(&[&init, &fd, &errors(text)]).is_some(), "the rule misses: {text}");
    }
    let files = tree();
    let found = circle(&files.iter().collect::<Vec<_>>());
    assert_eq!(found, None, "each of these files imports the next one");
}

/// Files of the package that import each other in a circle. The compiled half is not among them.
fn circle(files: &[&File]) -> Option<Vec<String>> {
    let texts: BTreeMap<&str, &str> = files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(PACKAGE)?.strip_suffix(".py")?, &*file.text)))
        .collect();
    let mut left: BTreeMap<&str, BTreeSet<&str>> =
        texts.iter().map(|(name, text)| (*name, imports(text, &texts))).collect();
    // A file that imports nothing that is left is not part of a circle.
    while let Some(name) = left.iter().find(|(_, used)| used.is_empty()).map(|(name, _)| *name) {
        left.remove(name);
        left.values_mut().for_each(|used| _ = used.remove(name));
    }
    let mut path = vec![*left.keys().next()?];
    loop {
        let last = path.last().expect("it has a beginning");
        let next = *left[last].first().expect("each imports one that is left");
        if let Some(begin) = path.iter().position(|name| *name == next) {
            return Some(path[begin..].iter().map(|name| format!("{name}.py")).collect());
        }
        path.push(next);
    }
}

/// The modules of the package that a text imports, at import time or later.
fn imports<'a>(text: &str, package: &BTreeMap<&'a str, &str>) -> BTreeSet<&'a str> {
    let module = |name: &str| package.get_key_value(name).map(|(name, _)| *name);
    // A name that is not a module's is defined in the package itself.
    let of_package = |name: &str| module(name).or(module("__init__").filter(|_| name != "_core"));
    let mut used = BTreeSet::new();
    for statement in statements(text) {
        if let Some(names) = statement.strip_prefix("import ") {
            let names = names.split(',').map(|name| name.trim().split(' ').next().unwrap_or(name));
            let inside = names.filter_map(|name| name.strip_prefix("pipework"));
            used.extend(inside.filter_map(|name| module(name.strip_prefix('.').unwrap_or("__init__"))));
        } else if let Some((from, names)) =
            statement.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        {
            match from.strip_prefix("pipework").unwrap_or(from) {
                "" | "." => {
                    used.extend(names.split(',').filter_map(|name| of_package(first_word(name.trim()))))
                }
                from => used.extend(from.strip_prefix('.').and_then(module)),
            }
        }
    }
    used
}

/// The imports of a Python text, each on one line and without parentheses; no documentation.
fn statements(text: &str) -> Vec<String> {
    let code: String = text.split("\"\"\"").step_by(2).collect();
    let (mut found, mut is_open) = (Vec::<String>::new(), false);
    for line in code.lines().map(str::trim) {
        match found.last_mut().filter(|_| is_open) {
            Some(statement) => *statement += line,
            None if line.starts_with("import ") || line.starts_with("from ") => found.push(line.into()),
            None => continue,
        }
        is_open = if is_open { !line.contains(')') } else { line.contains('(') && !line.contains(')') };
    }
    found.iter().map(|statement| statement.replace(['(', ')'], "")).collect()
}

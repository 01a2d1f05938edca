//! Things that documents name exist: links, targets of the Makefile, tests, the version. Their
//! examples are run.

use std::collections::BTreeSet;

use super::lexer::numbered;
use super::{CORE, Fault, File, hold, read, root, tree};

#[test]
fn links_between_documents_resolve() {
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let folder = root().join(&file.path).parent().expect("a file lies in a folder").to_path_buf();
        let mut faults = vec![];
        for (number, line) in numbered(&file.text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#', ' ']).next());
            // A target with a colon is a web address or a path of Rust, which rustdoc checks.
            let local = targets.filter(|target| !target.is_empty() && !target.contains(':'));
            let missing = local.filter(|target| !folder.join(target).exists());
            faults.extend(missing.map(|target| (number, format!("`{target}` does not exist"))));
        }
        faults
    }
    let bad = [("", "README.md", "See [the guide](docs/nowhere.md#start).")];
    hold(
        rule,
        &bad,
        &[("", "README.md", "[a](Makefile) [b](#here) [c](https://example.org) [d](crate::atomic)")],
    );
}

#[test]
fn documents_name_make_targets_that_exist() {
    fn rule(file: &File) -> Vec<Fault> {
        let makefile = read("Makefile");
        let heads = makefile.lines().filter_map(|line| line.split_once(':')).map(|(head, _)| head);
        let targets: BTreeSet<&str> = heads.flat_map(str::split_whitespace).collect();
        let quoted = |line: &str| -> Vec<String> {
            let commands = line.split('`').chain(line.strip_prefix("$ "));
            commands.filter_map(|command| command.strip_prefix("make ")).map(String::from).collect()
        };
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let mut faults = vec![];
        for (number, line) in numbered(&file.text) {
            for command in quoted(line.trim_start()) {
                let words = command.split_whitespace().take_while(|word| *word != "#");
                let unknown = words.filter(|word| !word.contains('=') && !targets.contains(word));
                faults.extend(unknown.map(|word| (number, format!("`make {word}` does not exist"))));
            }
        }
        faults
    }
    let bad = [("", "a.md", "Run `make coffee`."), ("", "a.md", "```\n$ make demo coffee\n```")];
    hold(rule, &bad, &[("", "a.md", "```\nmake demo FILE=words.txt # shows it\n```\nDo make sure to.")]);
}

#[test]
fn workflow_runs_only_make_targets_and_the_ci_script() {
    const AS_ROOT: &str = r#"sudo --preserve-env env PATH="$PATH" "#;
    /// Steps of a workflow that run neither CI's script nor only existing targets.
    fn others<'a>(workflow: &'a str, makefile: &str) -> Vec<&'a str> {
        let lines = workflow.lines().map(|line| line.trim_start().trim_start_matches("- "));
        let steps = lines.filter_map(|line| line.strip_prefix("run:")).map(str::trim);
        let is_target = |target: &str| makefile.lines().any(|line| line.starts_with(&format!("{target}:")));
        let is_known = |step: &&str| match step.strip_prefix(AS_ROOT).unwrap_or(step).strip_prefix("make ") {
            Some(targets) => targets.split(' ').all(is_target),
            None => *step == "bash .ci/run",
        };
        steps.filter(|step| !is_known(step)).collect()
    }
    let good = format!("- run: bash .ci/run\n- name: all\n  run: {AS_ROOT}make dist dist-test\n");
    let bad = ["make tea", "cargo test", "make dist; curl", "curl; make dist", "|"];
    let sample = good + &bad.map(|step| format!("  run: {step}\n")).concat();
    assert_eq!(others(&sample, "dist: cargo\ndist-test:\n"), bad);
    let workflow = read(".github/workflows/ci.yml");
    for needed in ["bash .ci/run\n", "make dist\n", "make dist-test\n"] {
        assert!(workflow.contains(needed), "the workflow runs {needed}");
    }
    assert_eq!(others(&workflow, &read("Makefile")), Vec::<&str>::new());
}

#[test]
fn proof_page_names_tests_that_exist() {
    /// The names in the rows of the page's tables that are not tests of `files`.
    fn unknown<'a>(page: &'a str, files: &[File]) -> Vec<&'a str> {
        let rows = page.lines().filter(|line| line.starts_with('|'));
        let quoted = rows.flat_map(|row| row.split('`').skip(1).step_by(2)).filter(|name| name.contains('_'));
        let is_test = |name: &str| {
            let heads = [format!("fn {name}("), format!("def {name}(")];
            files.iter().any(|file| heads.iter().any(|head| file.text.contains(head)))
        };
        quoted.filter(|name| !is_test(name)).collect()
    }
    let sample = [File::sample("a.rs", "#[test]\nfn it_is_kept() {}")];
    assert_eq!(unknown("| P1 | all | `it_is_kept`, `it_is_broken` |", &sample), ["it_is_broken"]);
    let page = read("docs/proof.md");
    assert!(page.matches("| P").count() >= 13, "the page has the tests of each promise");
    assert_eq!(unknown(&page, &tree()), Vec::<&str>::new(), "docs/proof.md names tests that do not exist");
}

/// The quoted value after `key` in a manifest's table, or after a mark in any text.
fn quoted<'a>(text: &'a str, table: &str, key: &str) -> Option<&'a str> {
    let rest = text.split_once(table)?.1.split_once(key)?.1;
    let quote = rest.chars().next()?;
    rest[1..].split_once(quote).map(|(inside, _)| inside)
}

fn version_of(manifest: &str) -> Option<&str> {
    quoted(manifest, "[workspace.package]", "\nversion = ")
}

#[test]
fn every_package_has_the_version_of_the_workspace() {
    /// Each file that must repeat the version, and the words in front of it.
    const SAID: [(&str, &str, &str); 6] = [
        ("Cargo.toml", "[workspace.dependencies]", "\npipework = { version = "),
        ("bridge/nats/Cargo.toml", "[package]", "\nversion = "),
        ("perl/lib/Pipework.pm", "", "our $VERSION = "),
        ("perl/lib/Pipework/Error.pm", "", "our $VERSION = "),
        ("perl/lib/Pipework/FD/Constants.pm", "", "our $VERSION = "),
        ("perl/lib/Pipework/InsteadOf.pm", "", "our $VERSION = "),
    ];
    assert_eq!(quoted("our $VERSION = '0.2.0';", "", "our $VERSION = "), Some("0.2.0"));
    let manifest = read("Cargo.toml");
    for (path, table, key) in SAID {
        assert_eq!(quoted(&read(path), table, key), version_of(&manifest), "{path}");
    }
    let entry = format!("\n{}\n", version_of(&manifest).expect("the workspace has a version"));
    assert!(read("perl/Changes").contains(&entry), "perl/Changes has no entry for it");
}

#[test]
fn the_changelog_begins_with_the_version_of_the_workspace() {
    /// The version in the first heading that holds one: `## 0.1.0 (2026-01-01)`, `## [0.1.0]`.
    fn newest(changelog: &str) -> Option<&str> {
        let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
        headings.find_map(|heading| {
            let version = heading.trim_start_matches(['[', 'v']).split([']', ' ']).next()?;
            version.starts_with(|c: char| c.is_ascii_digit()).then_some(version)
        })
    }
    let manifest = "[workspace.package]\nversion = \"0.2.0\"\n";
    assert_eq!(version_of(manifest), Some("0.2.0"));
    assert_eq!(
        newest("# Changes\n\n## Unreleased\n\n## [0.2.0] - today\n\n## 0.1.0\n"),
        version_of(manifest)
    );
    assert_ne!(newest("# Changes\n\n## 0.1.0\n"), version_of(manifest));

    let (manifest, changelog) = (read("Cargo.toml"), read("CHANGELOG.md"));
    let version = version_of(&manifest).expect("Cargo.toml gives the version under [workspace.package]");
    assert_eq!(
        newest(&changelog),
        Some(version),
        "the newest entry of CHANGELOG.md is not the version of Cargo.toml"
    );
}

#[test]
fn examples_in_documents_are_run() {
    /// Whether the tests run blocks of this kind in this document: those of the core's
    /// documentation run Rust, those of the packages Python and JavaScript, those of the C library C,
    /// those of the Perl distribution Perl, and those of the command and of the bridge the console blocks of
    /// their pages. The console blocks of the README are not run.
    fn is_run(path: &str, kind: &str) -> bool {
        let core = || read(&format!("{CORE}lib.rs"));
        let package = || read("python/tests/test_readme.py");
        let programs = || read("crates/pipework-c/tests/it/programs.rs");
        let perl = || read("perl/t/synopsis.t").contains("checkout() . '/{README,docs/{,*/}*}.md'");
        let is_a_page = path.starts_with("docs/");
        match kind {
            "rust" | "rust,no_run" => core().contains(&format!("include_str!(\"../../../{path}\")")),
            "python" if is_a_page => package().contains(r#"(ROOT / "docs").rglob("*.md")"#),
            "python" => package().contains(&format!("ROOT / \"{path}\"")),
            "c" => (is_a_page || path == "README.md") && programs().contains("../../README.md"),
            "go" => read("crates/pipework-c/tests/it/languages.rs").contains(path),
            "perl" => (is_a_page || ["README.md", "perl/README.md"].contains(&path)) && perl(),
            "js" => {
                let is_listed = ["README.md", "node/README.md", "docs/start/node.md"].contains(&path);
                let tests = || read("node/test/examples.test.mjs").contains("beside('../../docs/node')");
                (is_listed || path.starts_with("docs/node/")) && tests()
            }
            "console" if path == "docs/nats.md" => read("bridge/nats/tests/it/page.rs").contains(path),
            "console" => {
                ["README.md", "docs/command.md"].contains(&path)
                    || ["docs/start/", "docs/recipes/"].iter().any(|folder| path.starts_with(folder))
            }
            // Units of services.
            "ini" => ["docs/command.md", "docs/recipes/systemd.md"].contains(&path),
            // An alert whose metrics are on that page.
            "yaml" => path == "docs/recipes/monitoring.md",
            "" | "text" => true,
            _ => false,
        }
    }
    fn rule(file: &File) -> Vec<Fault> {
        if !file.path.ends_with(".md") {
            return vec![];
        }
        let fences = numbered(&file.text).filter_map(|(number, line)| {
            let kind = line.trim_start().strip_prefix("```")?;
            // The tests of the package look for it at the beginning of a line.
            let is_found = kind.is_empty() || !line.starts_with(' ');
            (!is_found || !is_run(&file.path, kind)).then_some((number, kind))
        });
        fences.map(|(number, kind)| (number, format!("no test runs this block of `{kind}`"))).collect()
    }
    let bad = [
        ("docs/rust/", "no-such-page.md", "```rust\nfn main() {}\n```"),
        ("docs/rust/", "pipe.md", "```rust,ignore\nfn main() {}\n```"),
        ("docs/python/", "pipe.md", "```py\nprint()\n```"),
        ("docs/python/", "pipe.md", "- So:\n  ```python\n  print()\n  ```"),
        ("bench/", "README.md", "```python\nprint()\n```"),
        ("docs/python/", "pipe.md", "```js\nprint()\n```"),
        ("bench/", "page.md", "```c\nint main(void) {}\n```"),
        ("docs/", "design.md", "```console\n$ pipework\n```"),
    ];
    let good = [
        ("", "README.md", "```rust\nfn main() {}\n```\n```python\nprint()\n```"),
        ("docs/rust/", "pipe.md", "```rust,no_run\nfn main() {}\n```"),
        ("docs/python/", "a-new-page.md", "```python\nprint()\n```"),
        ("docs/node/", "a-new-page.md", "```js\nprint()\n```"),
        ("docs/c/", "a-new-page.md", "```c\nint main(void) {}\n```"),
        ("bench/", "README.md", "```\nmake bench\n```"),
    ];
    hold(rule, &bad, &good);
}

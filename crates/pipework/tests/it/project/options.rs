//! The tables of `docs/options.md`, compared in both directions with the interface of each language, and
//! with the constants of the core and the ranges that Node checks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::time::Duration;

use pipework::broadcast::{MAX_MESSAGE_BYTES, MAX_MESSAGES};
use pipework::defaults::*;
use pipework::reqrep::{self, MAX_BLOBS, MAX_MEMBERS, MAX_PAYLOAD, MAX_QUEUE, MAX_REDELIVERIES, MAX_SLOTS};
use pipework::{atomic, broadcast, pipe};

use super::tidy::tree;

/// The columns of the tables of names.
const LANGUAGES: [&str; 6] = ["Rust", "Python", "Node", "C", "Perl", "the command"];
const SECTIONS: [&str; 8] = [
    "Channels",
    "Clients",
    "Servers",
    "Broadcast channels",
    "Publishers",
    "Subscribers",
    "Messages",
    "Byte pipes",
];
/// The sections about broadcasts.
const BROADCAST: [&str; 3] = ["Broadcast channels", "Publishers", "Subscribers"];

/// Options of the command that are no options of a module: what it reads, prints and runs. `--any-owner` is an
/// option of the channel.
const OF_THE_COMMAND: [(&str, &str); 3] = [
    ("Clients", "--any-owner --in-flight --json --lines --newline --nul --queue --stream --unordered"),
    ("Servers", "--attempts --drain --grace --lines --messages --nul --stream --timeout --workers"),
    (
        "Messages",
        "--append --arg-file --arg-nul --backlog --burst --count --create --exec --fail-fast \
         --files --forever --from --grace --interval --joblog --jobs --json --keep-order --lines \
         --messages --nul --separator --shell --stderr --tag --text --to",
    ),
];

type Names = BTreeSet<String>;

#[test]
fn options_page_has_the_options_of_every_interface() {
    let project = Project::new();
    let page = project.text("docs/options.md");
    // Each makes one row wrong.
    let wrong = [
        ("| `slots` | calls | 1 to 1,048,576 | 256 |", "| `slots` | calls | 1 to 1,048,576 | 255 |"),
        ("| `slots` | calls | 1 to 1,048,576 | 256 |", "| `slots` | calls | 1 to 1,048,577 | 256 |"),
        ("| bytes | 1 to 16 MiB | 64 KiB |", "| bytes | 1 to 32 MiB | 64 KiB |"),
        ("| `needs_server` | yes or no | | no |", "| `needs_server` | yes or no | | yes |"),
        ("| `closefd` | yes or no | | yes |", "| `closefd` | yes or no | | no |"),
        ("| for ever | writer:", "| 5 s | writer:"),
        ("| messages | 2 to 1,048,576 | 1024 |", "| messages | 2 to 1,048,576 | 2048 |"),
        ("| `observers` | yes or no | | no |", "| `observers` | yes or no | | yes |"),
        ("| `keep_bytes` | – |", "| – | – |"),
        ("| `must_see_all` | yes or no | | no |", "| `must_see_all` | yes or no | | yes |"),
        ("| `requestBytes` |", "| `request_bytes` |"),
        ("| `spin` | `spin` | `spin` | `spin_ns` | – | – |", "| `spin` | `spin` | `spin` | `spin` | – | – |"),
        ("| `blobs` | `blobs` | – |", "| `blobs` | `blobs` | `--blobs` |"),
        ("| – | – | – | – | `on_torn` | – |\n", "| – | – | – | – | – | – |\n"),
        ("| `--part-timeout` |", "| – |"),
        ("| `max_bytes` | `max_bytes` | `maxBytes` | `max_bytes` | – | – |\n", ""),
    ];
    for (right, wrong) in wrong {
        let wrong = page.replacen(right, wrong, 1);
        assert_ne!(wrong, page, "the page has {right}");
        assert!(!faults(&wrong, &project).is_empty(), "a fault behind {right} is found");
    }
    let faults = faults(page, &project);
    assert!(faults.is_empty(), "docs/options.md:\n{}\n", faults.join("\n"));
}

/// What a page says that is not so, and what it leaves out.
fn faults(page: &str, project: &Project) -> Vec<String> {
    let mut faults = vec![];
    let sections = sections(page);
    let found: Vec<&str> = sections.iter().map(|section| section.name.as_str()).collect();
    if found != SECTIONS {
        return vec![format!("its sections are {found:?}, and not {SECTIONS:?}")];
    }
    for section in &sections {
        faults.extend(faults_of_names(section, project));
        faults.extend(faults_of_values(section, project));
    }
    faults
}

fn faults_of_names(section: &Section, project: &Project) -> Vec<String> {
    let mut faults = vec![];
    let name = &section.name;
    let listed: Vec<&String> = section.facts.iter().map(|facts| &facts.option).collect();
    let named: Vec<Option<&String>> = section.names.iter().map(|row| row.iter().flatten().next()).collect();
    if listed.iter().map(|option| Some(*option)).ne(named.iter().copied()) {
        faults.push(format!("{name}: the tables have other rows: {listed:?}, {named:?}"));
    }
    for (column, language) in LANGUAGES.iter().enumerate() {
        let said: Names = section.names.iter().flat_map(|row| row[column].clone()).collect();
        let is_there = project.interface(name, language);
        for wrong in said.difference(&is_there) {
            faults.push(format!("{name}: {language} has no option `{wrong}`"));
        }
        for missing in is_there.difference(&said) {
            faults.push(format!("{name}: `{missing}` of {language} is missing"));
        }
    }
    faults
}

fn faults_of_values(section: &Section, project: &Project) -> Vec<String> {
    let mut faults = vec![];
    let name = &section.name;
    let mut compare = |option: &str, what: &str, said: &str, wanted: &str| {
        if said != wanted {
            faults.push(format!("{name}: the {what} of `{option}` is {wanted:?}, and not {said:?}"));
        }
    };
    let constants = constants(name, project);
    for (option, range, default) in &constants {
        let facts = section.facts.iter().find(|facts| facts.option == *option);
        compare(option, "range", facts.map_or("", |facts| &facts.range), range);
        compare(option, "default", facts.map_or("", |facts| &facts.default), default);
    }
    let flags = flags(name);
    let keywords = project.keywords(name);
    let ranges = project.ranges(name);
    for (facts, names) in section.facts.iter().zip(&section.names) {
        let Facts { option, unit, range, default } = facts;
        let has_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        if has_number(default) && !constants.iter().any(|(known, ..)| known == option) {
            compare(option, "default", default, "one that this test knows");
        }
        if let Some(is_set) = flags.get(option) {
            compare(option, "default", default, if *is_set { "yes" } else { "no" });
        }
        for keyword in names[1].iter().filter_map(|name| keywords.get(name)) {
            match keyword.as_str() {
                "True" => compare(option, "default", default, "yes"),
                "False" => compare(option, "default", default, "no"),
                "None" if has_number(default) => compare(option, "default", default, "none"),
                // A constant.
                "None" | "CAPACITY" => {}
                number if unit == "time" => {
                    let seconds = number.parse().expect("seconds are a number");
                    compare(option, "default", default, &time(Duration::from_secs_f64(seconds)));
                }
                number => compare(option, "default", default, &number_of(number.parse().unwrap(), unit)),
            }
        }
        for check in names[2].iter().filter_map(|name| ranges.get(name)) {
            match check {
                Range::Within(least, most) => {
                    let said = format!("{} to {}", number_of(*least, unit), number_of(*most, unit));
                    compare(option, "range", range, &said);
                }
                Range::UpTo(time) => {
                    compare(option, "range", range, &format!("0 to {time}"));
                    compare(option, "unit", unit, "time");
                }
                Range::Time => {
                    compare(option, "range", range, "from 0");
                    compare(option, "unit", unit, "time");
                }
                Range::Bytes => {
                    compare(option, "range", range, "from 0");
                    compare(option, "unit", unit, "bytes");
                }
                Range::YesOrNo => {
                    compare(option, "range", range, "");
                    compare(option, "unit", unit, "yes or no");
                }
            }
        }
    }
    faults
}

// ---------------------------------------------------------------- the page

struct Section {
    name: String,
    facts: Vec<Facts>,
    /// The names of an option in each language.
    names: Vec<[Vec<String>; 6]>,
}

struct Facts {
    option: String,
    unit: String,
    range: String,
    default: String,
}

fn sections(page: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = vec![];
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            sections.push(Section { name: heading.into(), facts: vec![], names: vec![] });
        }
        let Some(section) = sections.last_mut().filter(|_| line.starts_with("| ")) else { continue };
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        match cells[..] {
            ["option" | "---" | "Rust", ..] => {}
            [option, unit, range, default, _] => {
                let option = quoted(option).concat();
                let (unit, range, default) = (unit.into(), range.into(), default.into());
                section.facts.push(Facts { option, unit, range, default });
            }
            [rust, python, node, c, perl, command] => {
                section.names.push([rust, python, node, c, perl, command].map(quoted));
            }
            _ => panic!("a row has {} cells: {line}", cells.len()),
        }
    }
    sections
}

/// The names between backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(String::from).collect()
}

// ---------------------------------------------------------------- values

/// The options whose range and default follow from constants.
fn constants(section: &str, project: &Project) -> Vec<(&'static str, String, String)> {
    let from_0 = || "from 0".to_string();
    let to = |least: u32, most: u32| format!("{} to {}", grouped(least.into()), grouped(most.into()));
    let payload = || format!("0 to {}", size(MAX_PAYLOAD.into()));
    let bytes = |bytes: usize| size(bytes as u64);
    let spin = || ("spin", "0 to 1 ms".to_string(), time(SPIN));
    match section {
        "Channels" => vec![
            ("slots", to(1, MAX_SLOTS), SLOTS.to_string()),
            ("queue", to(1, MAX_QUEUE), "twice `slots`".into()),
            ("request_bytes", payload(), REQUEST_BYTES.to_string()),
            ("reply_bytes", payload(), REPLY_BYTES.to_string()),
            ("members", to(1, MAX_MEMBERS), MEMBERS.to_string()),
            ("blobs", to(0, MAX_BLOBS), MAX_BLOBS.to_string()),
            ("mode", "0000 to 0777".into(), format!("{MODE:04o}")),
            ("blob_pool", from_0(), size(BLOB_POOL)),
            spin(),
        ],
        "Clients" => vec![
            ("redeliveries", to(0, MAX_REDELIVERIES.into()), "0".into()),
            ("max_in_flight", to(0, u32::MAX), "0".into()),
            ("max_message", from_0(), bytes(MAX_MESSAGE)),
        ],
        "Servers" => vec![
            ("max_message", from_0(), bytes(MAX_MESSAGE)),
            ("part_timeout", from_0(), time(PART_TIMEOUT)),
        ],
        "Broadcast channels" => vec![
            ("messages", to(2, MAX_MESSAGES), MESSAGES.to_string()),
            ("message_bytes", format!("0 to {}", size(MAX_MESSAGE_BYTES.into())), MESSAGE_BYTES.to_string()),
            ("members", to(1, broadcast::MAX_MEMBERS), MEMBERS.to_string()),
            ("blobs", to(0, broadcast::MAX_BLOBS), broadcast::MAX_BLOBS.to_string()),
            ("mode", "0000 to 0777".into(), format!("{MODE:04o}")),
            ("blob_pool", from_0(), size(BLOB_POOL)),
            spin(),
        ],
        "Publishers" => {
            vec![("max_message", from_0(), bytes(MAX_MESSAGE)), ("keep_bytes", from_0(), size(KEEP_BYTES))]
        }
        "Subscribers" => vec![("max_message", from_0(), bytes(MAX_MESSAGE))],
        "Messages" => {
            let times = project.constant("const AT_ONCE: usize = ");
            assert_eq!(project.constant("const LEAST_UNFINISHED: usize = "), "1 << 30");
            vec![
                ("with_level", "-131,072 to 22".into(), ZSTD_LEVEL.to_string()),
                ("max_message", from_0(), bytes(MAX_MESSAGE)),
                ("max_unfinished", from_0(), format!("{times} × `max_message`, at least 1 GiB")),
                ("read_size", "1 to 16 MiB".into(), bytes(READ_SIZE)),
                ("frame_timeout", from_0(), time(FRAME_TIMEOUT)),
                ("max_pending", from_0(), bytes(MAX_PENDING)),
                spin(),
            ]
        }
        _ => vec![("capacity", "from 1".into(), bytes(pipe::CAPACITY))],
    }
}

/// The options that are on or off, as the core sets them.
fn flags(section: &str) -> BTreeMap<String, bool> {
    fn of(options: impl Debug) -> BTreeMap<String, bool> {
        let shown = format!("{options:?}");
        let fields = shown.split(['{', ',', '}']).filter_map(|field| field.trim().split_once(": "));
        fields.filter_map(|(name, value)| Some((name.into(), value.parse().ok()?))).collect()
    }
    let flags = match section {
        "Channels" => of(reqrep::Options::new()),
        "Clients" => of(reqrep::ClientOptions::new()),
        "Broadcast channels" => {
            let options = broadcast::Options::new();
            let segment = options.anonymous().expect("the defaults are possible");
            of(options).into_iter().chain(of(segment.geometry())).collect()
        }
        "Subscribers" => of(broadcast::SubscriberOptions::new()),
        "Messages" => of(atomic::Options::new()),
        _ => return BTreeMap::new(),
    };
    assert!(!flags.is_empty(), "{section}: some options are on or off");
    flags
}

fn number_of(number: i64, unit: &str) -> String {
    match unit {
        "bytes" => size(number.try_into().expect("no bytes are fewer than none")),
        "permissions" => format!("{number:04o}"),
        _ => grouped(number),
    }
}

fn size(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    let units = [(KIB * KIB * KIB, "GiB"), (KIB * KIB, "MiB"), (KIB, "KiB")];
    match units.iter().find(|(unit, _)| bytes >= 16 * KIB && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{} {name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// A number, with its thousands apart if it is long.
fn grouped(number: i64) -> String {
    match number.abs() {
        0..10_000 => number.to_string(),
        _ => format!("{},{:03}", grouped_whole(number / 1000), (number % 1000).abs()),
    }
}

fn grouped_whole(number: i64) -> String {
    match number.abs() {
        0..1000 => number.to_string(),
        _ => format!("{},{:03}", grouped_whole(number / 1000), (number % 1000).abs()),
    }
}

fn time(time: Duration) -> String {
    let text = format!("{time:?}");
    let unit = text.find(char::is_alphabetic).expect("a time has a unit");
    format!("{} {}", &text[..unit], &text[unit..])
}

// ---------------------------------------------------------------- the interfaces

/// What Node takes for an option.
enum Range {
    Within(i64, i64),
    /// A time.
    UpTo(String),
    Time,
    Bytes,
    YesOrNo,
}

struct Project(BTreeMap<String, String>);

impl Project {
    fn new() -> Project {
        Project(tree().into_iter().map(|file| (file.path, file.text)).collect())
    }

    fn text(&self, path: &str) -> &str {
        self.0.get(path).unwrap_or_else(|| panic!("{path} is not there"))
    }

    /// The options of what a section is about, as a language has them.
    fn interface(&self, section: &str, language: &str) -> Names {
        match language {
            "Rust" => self.of_rust(section),
            // No other language has broadcasts yet.
            _ if BROADCAST.contains(&section) => Names::new(),
            "Python" => self.of_python(section),
            "Node" => self.of_node(section),
            "C" => self.of_c(section),
            "Perl" => self.of_perl(section),
            _ => self.of_the_command(section),
        }
    }

    fn core(&self) -> impl Iterator<Item = &str> {
        let is_core = |path: &str| path.starts_with("crates/pipework/src/") && path.ends_with(".rs");
        self.0.iter().filter(move |(path, _)| is_core(path)).map(|(_, text)| text.as_str())
    }

    /// The value of a constant of the core.
    fn constant(&self, head: &str) -> &str {
        let found = self.core().find_map(|text| text.split_once(head)?.1.split_once(';'));
        found.unwrap_or_else(|| panic!("no file has {head}")).0
    }

    fn of_rust(&self, section: &str) -> Names {
        match section {
            "Channels" => self.setters("Options", "slots"),
            "Clients" => self.setters("ClientOptions", "redeliveries"),
            "Servers" => self.setters("ServerOptions", "max_message"),
            "Broadcast channels" => self.setters("Options", "message_bytes"),
            "Publishers" => self.setters("PublisherOptions", "keep_bytes"),
            "Subscribers" => self.setters("SubscriberOptions", "must_see_all"),
            "Messages" => &self.setters("Options", "mixed") | &self.setters("Zstd", "with_level"),
            _ => {
                let head = "pub fn pipe(";
                let text = self.core().find(|text| text.contains(head)).expect("the core has it");
                names(between(text, head, ")").split(", ").filter_map(|each| each.split_once(": ")))
            }
        }
    }

    /// The methods of a type that take it and return it, `one` of which it has.
    fn setters(&self, type_name: &str, one: &str) -> Names {
        let (head, one) = (format!("pub struct {type_name} {{"), format!("pub fn {one}(self, "));
        let mut files = self.core().filter(|text| text.contains(&head) && text.contains(&one));
        let text = files.next().unwrap_or_else(|| panic!("no file has {head}"));
        assert!(files.next().is_none(), "one file has {head}");
        let returned = [format!("-> {type_name} {{"), format!("-> Result<{type_name}> {{")];
        let lines = text.lines().zip(text.lines().skip(1)).map(|(before, line)| (before.trim(), line.trim()));
        let setters = lines.filter(|(before, line)| {
            *before != "#[doc(hidden)]" && returned.iter().any(|returned| line.ends_with(returned))
        });
        let heads = setters.filter_map(|(_, line)| line.strip_prefix("pub fn ")?.split_once("(self, "));
        names(heads)
    }

    fn of_python(&self, section: &str) -> Names {
        let typed = |path| {
            let fields = between(self.text(path), "class Options(TypedDict, total=False):", "\n\n\n");
            let fields = fields.rsplit("\"\"\"").next().expect("there is a rest");
            names(fields.lines().filter_map(|line| line.trim().split_once(": ")))
        };
        let keywords = self.keywords(section).into_keys().collect();
        match section {
            "Channels" => typed("python/pipework/_reqrep.py"),
            "Messages" => &typed("python/pipework/atomic.py") | &keywords,
            _ => keywords,
        }
    }

    /// The arguments of Python's functions that have a default, and the default.
    fn keywords(&self, section: &str) -> BTreeMap<String, String> {
        let stubs = self.text("python/pipework/_core.pyi");
        let pipes = self.text("python/pipework/pipe.py");
        let functions: &[(&str, &str, &str)] = match section {
            "Clients" => &[(stubs, "class Client(", "def __new__(")],
            "Servers" => &[(stubs, "class Server:", "def __new__(")],
            "Messages" => &[
                (stubs, "class Zstd:", "def __new__("),
                (stubs, "class AtomicReader:", "def __new__("),
                (stubs, "class AtomicWriter:", "def __new__("),
                (stubs, "class AtomicWriter:", "def fifo("),
            ],
            "Byte pipes" => &[(pipes, "", "def pipe("), (pipes, "", "def produce(")],
            _ => &[],
        };
        let arguments = functions.iter().flat_map(|(text, class, head)| {
            let text = text.split_once(class).unwrap_or_else(|| panic!("no {class}")).1;
            between(text, head, ") ->").split(',')
        });
        let defaults = arguments.filter_map(|argument| argument.trim().split_once(" = "));
        let named = defaults.filter_map(|(argument, default)| Some((argument.split_once(':')?.0, default)));
        named.map(|(name, default)| (name.into(), default.into())).collect()
    }

    fn of_node(&self, section: &str) -> Names {
        let fields = |module: &str, head: &str| {
            let types = self.text(&format!("node/lib/{module}.d.ts"));
            let fields = between(types, &format!("export interface {head} {{"), "\n}");
            names(fields.lines().filter_map(|line| line.trim().split_once("?: ")))
        };
        match section {
            "Channels" => fields("reqrep", "SegmentOptions"),
            "Clients" => {
                &fields("reqrep", "ClientOptions") | &fields("reqrep", "ConnectOptions extends ClientOptions")
            }
            "Servers" => fields("reqrep", "ServerOptions"),
            "Messages" => {
                let heads = ["Zstd", "Options", "EndOptions extends Options", "FifoOptions extends Options"];
                heads.iter().flat_map(|head| fields("atomic", head)).collect()
            }
            _ => Names::new(),
        }
    }

    /// What Node checks of each option.
    fn ranges(&self, section: &str) -> BTreeMap<String, Range> {
        let heads: &[&str] = match section {
            "Channels" => &["const SEGMENT = {"],
            "Clients" => &["const CLIENT = {"],
            "Servers" => &["const SERVER = {"],
            "Messages" => &["const ATOMIC = {", "const ZSTD = {"],
            _ => return BTreeMap::new(),
        };
        let source = self.text("node/lib/options.js");
        let level = between(source, "const level = ", ";");
        let mut ranges = BTreeMap::new();
        for head in heads {
            let mut rest = between(source, head, "};").trim();
            while !rest.is_empty() {
                // The check of an option may have a comma between parentheses.
                let end = rest
                    .char_indices()
                    .scan(0, |depth, (at, c)| {
                        *depth += (c == '(') as i32 - (c == ')') as i32;
                        Some((at, c == ',' && *depth == 0))
                    })
                    .find_map(|(at, is_end)| is_end.then_some(at))
                    .unwrap_or(rest.len());
                let entry = rest[..end].trim();
                rest = rest[end..].trim_start_matches(',').trim();
                // A name alone stands for the constant of this name.
                let short = (entry, if entry == "level" { level } else { "" });
                let (name, check) = entry.split_once(": ").unwrap_or(short);
                if let Some(range) = range(check) {
                    ranges.insert(name.to_string(), range);
                }
            }
        }
        assert!(ranges.len() > 1, "{section}: the ranges were found");
        ranges
    }

    fn of_c(&self, section: &str) -> Names {
        let header = self.text("crates/pipework-c/include/pipework.h");
        let name = match section {
            "Channels" => "pwk_segment_options",
            "Clients" => "pwk_client_options",
            "Servers" => "pwk_server_options",
            "Messages" => "pwk_atomic_options",
            _ => {
                let arguments = between(header, "pwk_status pwk_pipe_pair(", ");").split(", ");
                return names(
                    arguments.filter_map(|each| each.strip_prefix("size_t ")).map(|name| (name, ())),
                );
            }
        };
        let fields = between(header, &format!("typedef struct {name} {{"), &format!("}} {name};"));
        let lines = fields.lines().map(str::trim).filter(|line| !line.starts_with(['*', '/']));
        let declared = lines.filter_map(|line| line.strip_suffix(';')?.rsplit_once(' '));
        let all = declared.map(|(_, name)| (name, ()));
        names(all.filter(|(name, ())| *name != "size"))
    }

    fn of_perl(&self, section: &str) -> Names {
        let constructors = self.text("perl/src/reqrep_open.c");
        let taken = |function: &str| {
            let body = between(constructors, &format!("SV *{function}("), "\n}\n");
            let named = body.split("{\"").skip(1).filter_map(|rest| rest.split_once("\", NULL}"));
            let names: Vec<&str> =
                named.map(|(name, _)| name).filter(|name| !["path", "fd"].contains(name)).collect();
            names
        };
        let opened = taken("pwp_reqrep_open");
        // Clients take all of these, and servers those before the first that only clients take.
        let of_clients = opened.iter().position(|name| *name == "redeliveries").expect("clients take it");
        let (of_both, of_clients) = opened.split_at(of_clients);
        let documented = |path: &str, begin: &str, end: &str| {
            let items =
                between(self.text(path), begin, end).lines().filter(|line| line.starts_with("=item "));
            let before = items.flat_map(|item| item.rmatch_indices(" =>").map(|(at, _)| &item[..at]));
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            names(before.filter_map(|text| Some((text.rsplit(|c| !is_name(c)).next()?, ()))))
        };
        match section {
            "Channels" => names(taken("pwp_reqrep_create").iter().chain(of_both).map(|name| (*name, ()))),
            "Clients" => names(of_clients.iter().map(|name| (*name, ()))),
            "Servers" => Names::new(),
            "Messages" => documented("perl/lib/Pipework/Atomic.pm", "=head1 CONSTRUCTORS", "=back"),
            _ => documented("perl/lib/Pipework/Pipe.pm", "=head1 METHODS", "=item print"),
        }
    }

    fn of_the_command(&self, section: &str) -> Names {
        let structs: &[(&str, &str)] = match section {
            "Channels" => &[("serve/args", "MakingArgs")],
            "Clients" => &[("call/args", "CallArgs")],
            "Servers" => &[("serve/args", "ServeArgs")],
            "Messages" => &[
                ("args", "ReadingArgs"),
                ("args", "FormArgs"),
                ("send/args", "SendArgs"),
                ("recv/args", "RecvArgs"),
                ("tee/args", "TeeArgs"),
                ("run/args", "RunArgs"),
            ],
            _ => &[],
        };
        let mut options = Names::new();
        for (file, name) in structs {
            let source = self.text(&format!("crates/pipework-cli/src/{file}.rs"));
            let (mut is_inside, mut is_long) = (false, false);
            for line in between(source, &format!("pub(crate) struct {name} {{"), "\n}").lines().map(str::trim)
            {
                is_inside |= line.starts_with("#[arg(");
                is_long |= is_inside && line.split(|c: char| !c.is_alphabetic()).any(|word| word == "long");
                is_inside &= !line.ends_with(")]");
                if let Some((field, _)) =
                    line.strip_prefix("pub(crate) ").and_then(|rest| rest.split_once(':'))
                {
                    if is_long {
                        options.insert(format!("--{}", field.replace('_', "-")));
                    }
                    is_long = false;
                }
            }
        }
        let others = OF_THE_COMMAND.iter().filter(|(of, _)| *of == section);
        for other in others.flat_map(|(_, options)| options.split(' ')) {
            assert!(options.remove(other), "the command has no option {other} for {section}");
        }
        options
    }
}

/// What is before each second thing.
fn names<'a, T>(found: impl Iterator<Item = (&'a str, T)>) -> Names {
    found.map(|(name, _)| name.to_string()).collect()
}

/// The text from the first `begin` to the next `end`, without them.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("there is no {begin:?}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("there is no {end:?} behind {begin:?}")).0
}

/// The range that a check in Node's `options.js` stands for; `None` for what is neither a number nor on or off.
fn range(check: &str) -> Option<Range> {
    let arguments = |head: &str| check.strip_prefix(head)?.strip_suffix(')');
    if let Some((least, most)) = arguments("whole(").and_then(|both| both.split_once(", ")) {
        return Some(Range::Within(evaluated(least), evaluated(most)));
    }
    match (arguments("time("), check) {
        (Some("Infinity"), _) => Some(Range::Time),
        (Some(most), _) => {
            let milliseconds = most.parse().expect("a time is a number");
            Some(Range::UpTo(time(Duration::from_millis(milliseconds))))
        }
        (None, "bytesOfMemory" | "bytesOfMessage") => Some(Range::Bytes),
        (None, "yesOrNo") => Some(Range::YesOrNo),
        _ => None,
    }
}

/// A number as JavaScript has it: 65535, 0o777, 2 ** 20, 2 ** 32 - 1.
fn evaluated(text: &str) -> i64 {
    let (power, less) = text.split_once(" - ").unwrap_or((text, "0"));
    let number = match (power.split_once(" ** "), power.strip_prefix("0o")) {
        (Some((base, exponent)), _) => base.parse::<i64>().unwrap().pow(exponent.parse().unwrap()),
        (_, Some(octal)) => i64::from_str_radix(octal, 8).unwrap(),
        _ => power.parse().unwrap(),
    };
    number - less.parse::<i64>().unwrap()
}

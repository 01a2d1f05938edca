//! `include/pipework.h`, written from the sources, so that it has their content and
//! order.

use crate::sources::{Entry, entries, list};
use crate::{Folder, cc, done, is_written, read};

const PATH: &str = "include/pipework.h";
const COLUMNS: usize = 100;

#[test]
fn header_matches_the_sources() {
    is_written(PATH, &header());
}

#[test]
fn header_compiles_alone_and_first() {
    let folder = Folder::new();
    for standard in ["c99", "c11", "c17", "c++11", "c++20"] {
        let name = if standard.starts_with("c++") { "alone.cc" } else { "alone.c" };
        let text = "#include <pipework.h>\nint main(void) { return pwk_abi() != PWK_ABI; }\n";
        std::fs::write(folder.join(name), text).unwrap();
        done(cc(standard).arg("-c").arg(folder.join(name)).arg("-o").arg(folder.join("alone.o")));
    }
}

#[test]
fn example_of_the_header_is_run() {
    let header = read(PATH);
    let example = crate::programs::examples_of(&header, " * ```c", " * ```");
    let [example] = &example[..] else { panic!("the header has one example") };
    let text: String =
        example.lines().map(|line| line.strip_prefix(" * ").unwrap_or("").to_string() + "\n").collect();
    assert_eq!(crate::programs::run_text("first.c", &text), "hello\n");
}

pub(crate) fn header() -> String {
    let mut entries = entries().into_iter();
    let Some(Entry::Section(front)) = entries.next() else { panic!("the crate says what it is") };
    let mut out = comment(&front, "");
    out += "#ifndef PIPEWORK_H\n#define PIPEWORK_H\n\n";
    for file in ["poll.h", "stdbool.h", "stddef.h", "stdint.h", "sys/socket.h"] {
        out += &format!("#include <{file}>\n");
    }
    out += "\n";
    out += "#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    let mut is_list = false;
    for entry in entries {
        // Constants of one type stand together.
        let goes_on = is_list && matches!(entry, Entry::Constant { .. });
        is_list = matches!(entry, Entry::Constant { .. });
        if !goes_on {
            out += "\n";
        }
        out += &written(&entry);
    }
    out += "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n";
    out
}

fn written(entry: &Entry) -> String {
    match entry {
        Entry::Section(docs) => {
            let line = "-".repeat(COLUMNS - 3);
            format!("/* {line}\n{} */\n", body(docs, ""))
        }
        Entry::Constant { docs, name, value } => {
            let note = comment(docs, "");
            format!("{note}#define {name} {value}\n")
        }
        Entry::Alias { docs, declared, .. } => format!("{}typedef {declared};\n", comment(docs, "")),
        Entry::Handle { docs, name } => format!("{}typedef struct {name} {name};\n", comment(docs, "")),
        Entry::Struct { docs, name, fields } => {
            let fields: String = fields
                .iter()
                .map(|field| format!("{}    {};\n", comment(&field.docs, "    "), field.declared))
                .collect();
            format!("{}typedef struct {name} {{\n{fields}}} {name};\n", comment(docs, ""))
        }
        Entry::Function { docs, name, returned, arguments } => {
            let head = format!("{returned}{name}(");
            format!("{}{head}{});\n", comment(docs, ""), wrapped(arguments, head.len()))
        }
    }
}

/// Arguments on as few lines as they need, each below the first.
fn wrapped(arguments: &[String], indent: usize) -> String {
    let (mut text, mut column) = (String::new(), indent);
    if arguments.is_empty() {
        return list(arguments);
    }
    for (i, argument) in arguments.iter().enumerate() {
        let len = argument.len() + 2;
        if i > 0 && column + len > COLUMNS {
            text = text.trim_end().to_string() + "\n" + &" ".repeat(indent);
            column = indent;
        }
        text += argument;
        if i + 1 < arguments.len() {
            text += ", ";
        }
        column += len;
    }
    text
}

fn comment(docs: &[String], indent: &str) -> String {
    match docs {
        [] => String::new(),
        [line] if indent.len() + line.len() + 6 <= COLUMNS => format!("{indent}/* {line} */\n"),
        lines => format!("{indent}/*\n{}{indent} */\n", body(lines, indent)),
    }
}

fn body(lines: &[String], indent: &str) -> String {
    lines.iter().map(|line| format!("{indent} * {line}").trim_end().to_string() + "\n").collect()
}

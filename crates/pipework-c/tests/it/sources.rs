//! The interface for C that the sources declare: constants, types and functions, in reading order,
//! in C's words.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pipework::defaults;
use syn::{
    Attribute, Expr, Fields, FnArg, GenericArgument, Item, Meta, Pat, PathArguments, PointerMutability,
    ReturnType, Type, Visibility,
};

use crate::home;

/// Something that C gets, or text between such things.
pub(crate) enum Entry {
    /// The comment that opens a file: about everything in it.
    Section(Vec<String>),
    Constant {
        docs: Vec<String>,
        name: String,
        value: String,
    },
    Alias {
        docs: Vec<String>,
        name: String,
        declared: String,
    },
    /// A struct whose fields C does not know.
    Handle {
        docs: Vec<String>,
        name: String,
    },
    Struct {
        docs: Vec<String>,
        name: String,
        fields: Vec<Field>,
    },
    Function {
        docs: Vec<String>,
        name: String,
        returned: String,
        arguments: Vec<String>,
    },
}

pub(crate) struct Field {
    pub(crate) docs: Vec<String>,
    pub(crate) name: String,
    pub(crate) declared: String,
}

/// All that C gets. The first section is that of the crate.
pub(crate) fn entries() -> Vec<Entry> {
    let mut files = vec![];
    collect(&home().join("src/lib.rs"), &mut files);
    let handles = files.iter().flat_map(|file| &file.items).filter_map(|item| match item {
        Item::Struct(item) if is_public(&item.vis) && !is_repr(&item.attrs, "C") => {
            Some(item.ident.to_string())
        }
        _ => None,
    });
    let words = Words { handles: handles.collect() };
    files.iter().flat_map(|file| words.of_file(file)).collect()
}

/// A file, and then the modules that it declares, in order.
fn collect(path: &Path, files: &mut Vec<syn::File>) {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let modules: Vec<String> = file
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(item) if item.content.is_none() => Some(item.ident.to_string()),
            _ => None,
        })
        .collect();
    files.push(file);
    let folder = match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "mod.rs") => path.parent().expect("it lies in a folder").to_path_buf(),
        _ => path.with_extension(""),
    };
    for module in modules {
        let [file, inside] = [folder.join(format!("{module}.rs")), folder.join(format!("{module}/mod.rs"))];
        collect(if file.exists() { &file } else { &inside }, files);
    }
}

struct Words {
    handles: BTreeSet<String>,
}

impl Words {
    fn of_file(&self, file: &syn::File) -> Vec<Entry> {
        let entries: Vec<Entry> = file.items.iter().filter_map(|item| self.of_item(item)).collect();
        let declares =
            file.items.iter().any(|item| matches!(item, Item::Mod(item) if item.content.is_none()));
        // The boundary has nothing for C.
        if entries.is_empty() && !declares {
            return vec![];
        }
        [Entry::Section(docs(&file.attrs))].into_iter().chain(entries).collect()
    }

    fn of_item(&self, item: &Item) -> Option<Entry> {
        match item {
            Item::Const(item) if is_public(&item.vis) => {
                let (docs, name, value) = (docs(&item.attrs), item.ident.to_string(), value(&item.expr));
                Some(Entry::Constant { docs, name, value })
            }
            Item::Type(item) if is_public(&item.vis) => {
                let (docs, name) = (docs(&item.attrs), item.ident.to_string());
                let declared = self.declare(&item.ty, &name);
                Some(Entry::Alias { docs, name, declared })
            }
            Item::Struct(item) if is_public(&item.vis) && is_repr(&item.attrs, "C") => {
                let Fields::Named(named) = &item.fields else { panic!("{}: fields have names", item.ident) };
                let fields = named.named.iter().map(|field| {
                    let name = field.ident.as_ref().expect("it has a name").to_string();
                    Field { docs: docs(&field.attrs), declared: self.declare(&field.ty, &name), name }
                });
                Some(Entry::Struct {
                    docs: docs(&item.attrs),
                    name: item.ident.to_string(),
                    fields: fields.collect(),
                })
            }
            Item::Struct(item) if is_public(&item.vis) && item.ident.to_string().starts_with("pwk_") => {
                Some(Entry::Handle { docs: docs(&item.attrs), name: item.ident.to_string() })
            }
            Item::Fn(item) if item.sig.abi.is_some() => {
                let arguments = item.sig.inputs.iter().map(|argument| match argument {
                    FnArg::Typed(argument) => match &*argument.pat {
                        Pat::Ident(name) => self.declare(&argument.ty, &name.ident.to_string()),
                        _ => panic!("{}: arguments have names", item.sig.ident),
                    },
                    FnArg::Receiver(_) => panic!("{}: no function of C has a self", item.sig.ident),
                });
                let returned = match &item.sig.output {
                    ReturnType::Default => "void ".into(),
                    ReturnType::Type(_, returned) => self.declare(returned, ""),
                };
                let (docs, name) = (docs(&item.attrs), item.sig.ident.to_string());
                Some(Entry::Function { docs, name, returned, arguments: arguments.collect() })
            }
            _ => None,
        }
    }

    /// A declaration of `inner` as being of this type.
    fn declare(&self, of: &Type, inner: &str) -> String {
        match of {
            Type::Ptr(pointer) => {
                self.point(&pointer.elem, inner, matches!(pointer.mutability, PointerMutability::Const(_)))
            }
            Type::Array(array) => self.declare(&array.elem, &format!("{inner}[{}]", value(&array.len))),
            Type::FnPtr(function) => {
                let arguments: Vec<String> = function
                    .inputs
                    .iter()
                    .map(|argument| {
                        let name = argument.name.as_ref().map(|(name, _)| name.to_string());
                        self.declare(&argument.ty, &name.unwrap_or_default())
                    })
                    .collect();
                let inner = format!("(*{inner})({})", list(&arguments));
                match &function.output {
                    ReturnType::Default => format!("void {inner}"),
                    ReturnType::Type(_, returned) => self.declare(returned, &inner),
                }
            }
            Type::Path(path) => {
                let last = path.path.segments.last().expect("a path has a name");
                let name = last.ident.to_string();
                let of = match &last.arguments {
                    PathArguments::AngleBracketed(arguments) => {
                        arguments.args.iter().find_map(|argument| match argument {
                            GenericArgument::Type(of) => Some(of),
                            _ => None,
                        })
                    }
                    _ => None,
                };
                match (name.as_str(), of) {
                    ("In" | "Lent", Some(of)) => self.point(of, inner, !self.is_handle(of)),
                    ("InOut" | "Out" | "Space" | "Handle", Some(of)) => self.point(of, inner, false),
                    ("Option", Some(function)) => self.declare(function, inner),
                    (name, None) => format!("{} {inner}", word(name)),
                    (name, Some(_)) => panic!("`{name}` means nothing to C"),
                }
            }
            _ => panic!("a type that means nothing to C"),
        }
    }

    fn point(&self, to: &Type, inner: &str, is_const: bool) -> String {
        match (is_const, self.is_pointer(to)) {
            (true, true) => self.declare(to, &format!("const *{inner}")),
            (true, false) => format!("const {}", self.declare(to, &format!("*{inner}"))),
            (false, _) => self.declare(to, &format!("*{inner}")),
        }
    }

    fn is_handle(&self, of: &Type) -> bool {
        last_name(of).is_some_and(|name| self.handles.contains(&name))
    }

    fn is_pointer(&self, of: &Type) -> bool {
        last_name(of).is_some_and(|name| ["In", "Handle"].contains(&name.as_str()))
    }
}

fn last_name(of: &Type) -> Option<String> {
    let Type::Path(path) = of else { return None };
    path.path.segments.last().map(|last| last.ident.to_string())
}

/// Arguments of a function in parentheses.
pub(crate) fn list(arguments: &[String]) -> String {
    if arguments.is_empty() { "void".into() } else { arguments.join(", ") }
}

fn word(name: &str) -> &str {
    match name {
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "isize" => "ptrdiff_t",
        "bool" | "Truth" => "bool",
        "c_char" => "char",
        "c_int" | "Number" => "int",
        "c_void" => "void",
        "socklen_t" => "socklen_t",
        "pollfd" => "struct pollfd",
        "sockaddr" => "struct sockaddr",
        "sockaddr_storage" => "struct sockaddr_storage",
        name if name.starts_with("pwk_") => name,
        _ => panic!("`{name}` means nothing to C"),
    }
}

fn value(expression: &Expr) -> String {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            syn::Lit::Int(number) => number.to_string(),
            _ => panic!("a constant of C is a number"),
        },
        Expr::Unary(negative) => format!("(-{})", value(&negative.expr)),
        Expr::Path(path) => {
            let names: Vec<String> =
                path.path.segments.iter().map(|segment| segment.ident.to_string()).collect();
            match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["u32", "MAX"] => "UINT32_MAX".into(),
                ["u64", "MAX"] => "UINT64_MAX".into(),
                ["i64", "MAX"] => "INT64_MAX".into(),
                ["defaults", name] => default(name),
                _ => panic!("`{}` means nothing to C", names.join("::")),
            }
        }
        Expr::Call(call) => call.args.first().map_or("NULL".into(), value),
        Expr::Struct(literal) => {
            let values: Vec<String> = literal.fields.iter().map(|field| value(&field.expr)).collect();
            format!("{{{}}}", values.join(", "))
        }
        Expr::Repeat(_) => "{NULL}".into(),
        _ => panic!("a value that means nothing to C"),
    }
}

/// A default of the core as C writes it; times in nanoseconds.
fn default(name: &str) -> String {
    match name {
        "SLOTS" => defaults::SLOTS.to_string(),
        "REQUEST_BYTES" => defaults::REQUEST_BYTES.to_string(),
        "REPLY_BYTES" => defaults::REPLY_BYTES.to_string(),
        "MEMBERS" => defaults::MEMBERS.to_string(),
        "MESSAGES" => defaults::MESSAGES.to_string(),
        "MESSAGE_BYTES" => defaults::MESSAGE_BYTES.to_string(),
        "KEEP_BYTES" => defaults::KEEP_BYTES.to_string(),
        "MODE" => format!("0{:o}", defaults::MODE),
        "BLOB_POOL" => defaults::BLOB_POOL.to_string(),
        "MAX_MESSAGE" => defaults::MAX_MESSAGE.to_string(),
        "PART_TIMEOUT" => defaults::PART_TIMEOUT.as_nanos().to_string(),
        "SPIN" => defaults::SPIN.as_nanos().to_string(),
        "READ_SIZE" => defaults::READ_SIZE.to_string(),
        "MAX_PENDING" => defaults::MAX_PENDING.to_string(),
        "FRAME_TIMEOUT" => defaults::FRAME_TIMEOUT.as_nanos().to_string(),
        "ZSTD_LEVEL" => defaults::ZSTD_LEVEL.to_string(),
        _ => panic!("the core has no default `{name}`"),
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_repr(attributes: &[Attribute], repr: &str) -> bool {
    let of = |attribute: &Attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("repr") => list.tokens.to_string() == repr,
        _ => false,
    };
    attributes.iter().any(of)
}

/// The lines of a documentation.
fn docs(attributes: &[Attribute]) -> Vec<String> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                syn::Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_string()).collect()
}

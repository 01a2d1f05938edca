//! A page of figures as OpenMetrics 1.0, and the HTTP reply that carries it. The bridge uses this
//! file too, by its path, so it needs the standard library only.

use std::fmt::{Display, Write};

const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A page that grows by families.
#[derive(Default)]
pub(crate) struct Page(String);

impl Page {
    /// Appends a family: `name` without the suffix that a sample has. A sample is that suffix with
    /// its labels in braces, and a value.
    pub(crate) fn family<V: Display>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, V)>,
    ) {
        const IN_MEMORY: &str = "writing to a String cannot fail";
        writeln!(self.0, "# TYPE pipework_{name} {kind}\n# HELP pipework_{name} {help}").expect(IN_MEMORY);
        for (suffix, value) in samples {
            writeln!(self.0, "pipework_{name}{suffix} {value}").expect(IN_MEMORY);
        }
    }

    /// The whole page.
    pub(crate) fn finish(self) -> String {
        self.0 + "# EOF\n"
    }
}

/// Bytes of the longest request.
pub(crate) const LONGEST: usize = 8192;

/// Whether a request ends with its empty line. Closing a connection with unread bytes resets it.
pub(crate) fn is_whole(request: &[u8]) -> bool {
    request.windows(4).any(|end| end == b"\r\n\r\n")
}

/// The reply to a request, which need not be whole; `page` makes the page.
pub(crate) fn reply(request: &[u8], page: impl FnOnce() -> String) -> Vec<u8> {
    let line = String::from_utf8_lossy(request.split(|byte| *byte == b'\r').next().unwrap_or_default());
    let words: Vec<_> = line.split(' ').collect();
    let (status, kind, body) = match words[..] {
        ["GET" | "HEAD", "/metrics" | "/", _] => ("200 OK", TYPE, page()),
        ["GET" | "HEAD", ..] => ("404 Not Found", "text/plain", "the page is /metrics\n".into()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".into()),
    };
    let length = body.len();
    let mut reply = format!(
        "HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if words[0] != "HEAD" {
        reply.push_str(&body);
    }
    reply.into_bytes()
}

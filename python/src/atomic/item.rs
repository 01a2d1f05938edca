//! The items that a reader returns. The classes are Python's own named tuples, in
//! `pipework/_atomic.py`; they are filled in here.

use pipework::atomic::{Item, Limit, Torn, WriterKey};
use pyo3::prelude::*;

use crate::buffer::bytes;
use crate::imports::Import;

const MODULE: &str = "pipework._atomic";

/// The item as Python sees it.
pub(super) fn to_python(py: Python<'_>, item: Item<'_>) -> PyResult<Py<PyAny>> {
    static MESSAGE: Import = Import::new(MODULE, "Message");
    static BURST: Import = Import::new(MODULE, "Burst");
    static LINE: Import = Import::new(MODULE, "Line");
    let bytes = |data: &[u8]| bytes(py, [data]);
    let frame = |compressed: Option<&[u8]>| compressed.map(bytes).transpose();
    match item {
        Item::Message(message) => {
            let writer = key(py, message.writer)?;
            let compressed = frame(message.compressed.as_deref())?;
            MESSAGE.make(py, (bytes(&message.data)?, writer, message.parts, compressed))
        }
        Item::Burst(burst) => BURST.make(py, (bytes(&burst.data)?, frame(burst.compressed.as_deref())?)),
        Item::Line(line) => LINE.make(py, (bytes(&line.data)?,)),
        Item::Torn(report) => torn(py, report),
    }
}

/// The report of a loss.
pub(super) fn torn(py: Python<'_>, torn: Torn) -> PyResult<Py<PyAny>> {
    static TORN: Import = Import::new(MODULE, "_torn");
    let writer = torn.writer.map(|writer| key(py, writer)).transpose()?;
    TORN.make(py, (writer, torn.parts, torn.bytes, torn.kind as i32, torn.limit.map(Limit::name)))
}

/// The name of a writer.
pub(super) fn key(py: Python<'_>, key: WriterKey) -> PyResult<Py<PyAny>> {
    static KEY: Import = Import::new(MODULE, "WriterKey");
    KEY.make(py, (key.pid, key.tid))
}

//! What a client sends and what it returns: bytes as they are, or objects by the codec of
//! `pipework/_codecs.py`.

use pipework::reqrep::{Blob, Reply};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use super::blobs::{self, Attached};
use super::segment::{MODULE, Segment};
use crate::buffer::{bytes, is_bytes_like};
use crate::imports::Import;

const CODECS: &str = "pipework._codecs";
pub(super) const SEND: &str = "reqrep send";

/// The codec of a client; None for bytes.
pub(super) struct Codec(Option<Py<PyAny>>);

/// Data, flags and blobs as a method gets them.
pub(super) type Arguments<'a, 'py> = (&'a Bound<'py, PyAny>, u32, Attached);

impl Codec {
    /// `named`: the argument `codec=`.
    pub(super) fn new(py: Python<'_>, named: Option<&Bound<'_, PyAny>>) -> PyResult<Codec> {
        static FOUND: Import = Import::new(CODECS, "found");
        named.map(|named| FOUND.make(py, (named,))).transpose().map(Codec)
    }

    /// The argument that it was made of.
    pub(super) fn named<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.as_ref().map(|codec| codec.bind(py).getattr("named")).transpose()
    }

    fn clone_ref(&self, py: Python<'_>) -> Codec {
        Codec(self.0.as_ref().map(|codec| codec.clone_ref(py)))
    }

    /// The bytes of a request, and the blobs that it carries: those of the codec come first.
    pub(super) fn encode<'py>(
        &self,
        op: &str,
        segment: &Py<Segment>,
        (value, blobs): (&Bound<'py, PyAny>, Attached),
    ) -> PyResult<(Bound<'py, PyAny>, Attached)> {
        let Some(codec) = &self.0 else {
            if !is_bytes_like(value) {
                let class = value.get_type().name()?;
                return Err(PyTypeError::new_err(format!(
                    "{op}: a bytes-like object is required, not '{class}'; for other objects, give the client codec="
                )));
            }
            return Ok((value.clone(), blobs));
        };
        let encode = codec.bind(value.py()).getattr("encode")?;
        let (data, mut all): (_, Attached) =
            encode.call1((op, "request", value, segment, blobs.0.len()))?.extract()?;
        all.0.extend(blobs.0);
        Ok((data, all))
    }
}

/// What Python gets of a reply, or of a part of one.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Data,
    /// With its flags and blobs.
    Message,
}

/// Makes Python's result of a reply, or of a part of one.
pub(super) struct Give {
    codec: Codec,
    op: &'static str,
    form: Form,
}

impl Give {
    pub(super) fn new(py: Python<'_>, codec: &Codec, op: &'static str, form: Form) -> Give {
        Give { codec: codec.clone_ref(py), op, form }
    }

    pub(super) fn reply(&self, py: Python<'_>, reply: &Reply) -> PyResult<Py<PyAny>> {
        self.make(py, bytes(py, [reply])?, reply.flags(), reply.blobs())
    }

    pub(super) fn make(
        &self,
        py: Python<'_>,
        data: Py<PyBytes>,
        flags: u32,
        blobs: &[Blob],
    ) -> PyResult<Py<PyAny>> {
        static MESSAGE: Import = Import::new(MODULE, "Message");
        if self.codec.0.is_none() && matches!(self.form, Form::Data) {
            return Ok(data.into_any());
        }
        let (data, blobs) = self.decode(py, data, blobs)?;
        match self.form {
            Form::Data => Ok(data),
            Form::Message => MESSAGE.make(py, (data, flags, blobs)),
        }
    }

    /// The object of a reply, and the blobs that are not part of it.
    pub(super) fn decode<'py>(
        &self,
        py: Python<'py>,
        data: Py<PyBytes>,
        blobs: &[Blob],
    ) -> PyResult<(Py<PyAny>, Bound<'py, PyTuple>)> {
        let blobs = blobs::received(py, blobs)?;
        let Some(codec) = &self.codec.0 else { return Ok((data.into_any(), blobs)) };
        codec.bind(py).getattr("decode")?.call1((self.op, "reply", data, blobs))?.extract()
    }

    pub(super) fn clone_ref(&self, py: Python<'_>) -> Give {
        Give { codec: self.codec.clone_ref(py), ..*self }
    }

    /// Splits the work for a task, whose future must not come to None as an object may: the future
    /// gives the message with its bytes, and `awaited` decodes it.
    pub(super) fn of_future(&self) -> Give {
        let form = if self.codec.0.is_some() { Form::Message } else { self.form };
        Give { codec: Codec(None), op: self.op, form }
    }

    /// The coroutine that decodes what the coroutine of that future returns.
    pub(super) fn awaited<'py>(
        &self,
        py: Python<'py>,
        message: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static DECODED: Import = Import::new(CODECS, "decoded");
        match &self.codec.0 {
            Some(codec) => DECODED.call(py, (codec, self.op, message, matches!(self.form, Form::Message))),
            None => Ok(message),
        }
    }
}

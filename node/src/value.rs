//! **Boundary**: what goes to JavaScript: the results of futures, and the fields of items.

#![allow(unsafe_code)]

use std::time::Duration;

use napi::bindgen_prelude::{BigInt, Buffer, BufferSlice, ToNapiValue, TypeName};
use napi::{Env, Result, ValueType, sys};

use crate::error::Failure;

/// From this size on, a vector is handed over instead of copied.
const LARGE: usize = 16 << 10;

/// One value.
pub(crate) enum Value {
    Undefined,
    Truth(bool),
    /// In a list of results: the number of the task whose result comes next.
    Number(u32),
    Real(f64),
    Text(String),
    Ticket(u64),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    /// An object of a class.
    Instance(Box<dyn FnOnce(sys::napi_env) -> Result<sys::napi_value>>),
    /// The result of a task that has failed: an error, which is not thrown.
    Failure(Failure),
}

impl Value {
    /// The result of a task that has failed.
    pub(crate) fn failed(failure: impl Into<Failure>) -> Value {
        Value::Failure(failure.into())
    }

    /// An object of a class of this addon.
    pub(crate) fn instance<T: ToNapiValue + 'static>(made: T) -> Value {
        // SAFETY: `to_napi_value` below passes its own environment on.
        Value::Instance(Box::new(move |env| unsafe { T::to_napi_value(env, made) }))
    }

    pub(crate) fn bytes_or_undefined(bytes: Option<Vec<u8>>) -> Value {
        bytes.map_or(Value::Undefined, Value::Bytes)
    }
}

impl TypeName for Value {
    fn type_name() -> &'static str {
        "unknown"
    }

    fn value_type() -> ValueType {
        ValueType::Unknown
    }
}

impl ToNapiValue for Value {
    // SAFETY: the macros of napi call it, with the environment of the call under way.
    unsafe fn to_napi_value(raw: sys::napi_env, value: Value) -> Result<sys::napi_value> {
        let env = Env::from_raw(raw);
        // SAFETY: as above.
        unsafe {
            match value {
                Value::Undefined => ToNapiValue::to_napi_value(raw, ()),
                Value::Truth(truth) => ToNapiValue::to_napi_value(raw, truth),
                Value::Number(number) => ToNapiValue::to_napi_value(raw, number),
                Value::Real(number) => ToNapiValue::to_napi_value(raw, number),
                Value::Text(text) => ToNapiValue::to_napi_value(raw, text),
                Value::Ticket(ticket) => ToNapiValue::to_napi_value(raw, BigInt::from(ticket)),
                Value::Bytes(bytes) if bytes.len() < LARGE => {
                    ToNapiValue::to_napi_value(raw, BufferSlice::copy_from(&env, bytes)?)
                }
                Value::Bytes(bytes) => ToNapiValue::to_napi_value(raw, Buffer::from(bytes)),
                Value::List(values) => ToNapiValue::to_napi_value(raw, values),
                Value::Instance(make) => make(raw),
                Value::Failure(failure) => ToNapiValue::to_napi_value(raw, failure.made(&env)?),
            }
        }
    }
}

/// A time that JavaScript gives in milliseconds. One that is too long for a `Duration` is as good
/// as no limit.
pub(crate) fn milliseconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time / 1000.0).unwrap_or(Duration::MAX)
}

//! What goes to JavaScript: the results of futures, and the fields of items.

use std::time::Duration;

use napi::bindgen_prelude::{
    BigInt, Buffer, BufferSlice, JavaScriptClassExt, ToNapiValue, TypeName, Undefined,
};
use napi::{Env, Result, ValueType, sys};

use crate::error::Failure;
use crate::reqrep::{Blob, Parts};

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
    Parts(Parts),
    Blob(Blob),
    /// The result of a task that has failed: an error, which is not thrown.
    Failure(Failure),
}

impl Value {
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
    unsafe fn to_napi_value(raw: sys::napi_env, value: Value) -> Result<sys::napi_value> {
        let env = Env::from_raw(raw);
        // SAFETY: `raw` is the environment of the call that this is the result of.
        unsafe {
            match value {
                Value::Undefined => ToNapiValue::to_napi_value(raw, Undefined::default()),
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
                Value::Parts(parts) => ToNapiValue::to_napi_value(raw, parts.into_instance(&env)?),
                Value::Blob(blob) => ToNapiValue::to_napi_value(raw, blob.into_instance(&env)?),
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

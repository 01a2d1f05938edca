//! The mapping: the meaning of a NATS message's headers for a call. [BRIDGE.md](../BRIDGE.md) is
//! its specification. Pure.
//!
//! Reading any headers, hostile ones too, returns a meaning or says what is wrong with them.

use async_nats::HeaderMap;
use std::time::Duration;

const CALL: &str = "Pipework-Call";
const TIMEOUT: &str = "Pipework-Timeout";
const FLAGS: &str = "Pipework-Flags";
const STEP: &str = "Pipework-Step";
const PART: &str = "Pipework-Part";
const MORE: &str = "Pipework-More";
const ERROR_CODE: &str = "Nats-Service-Error-Code";
const ERROR: &str = "Nats-Service-Error";

/// The version of the mapping, which a caller names that knows it.
const VERSION: u64 = 1;

/// The description of a request in its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The caller knows this mapping: it takes steps and parts. Any other gets one message.
    pub knows_steps: bool,
    /// It asks whether a bridge answers here, and nothing else.
    pub is_probe: bool,
    /// The payload is a piece of the request's first blob, and further pieces follow.
    pub is_blob: bool,
    /// How long the caller waits, from now on.
    pub timeout: Option<Duration>,
    /// The user's 32 bits.
    pub flags: u32,
    /// The payload, or the blob that `is_blob` names, goes on with the next piece.
    pub more: bool,
}

/// A message of either side in the middle of a call, or at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Expose has the request, and works on it.
    Accepted,
    /// All pieces before this number were taken.
    Ack(u64),
    /// A piece of a request or of a reply, with its number; `more` if the part goes on with the
    /// next.
    Part {
        /// Counted from 0.
        number: u64,
        /// The part goes on with the next piece.
        more: bool,
        /// The user's 32 bits.
        flags: u32,
    },
    /// A piece of a blob, which belongs to the message whose payload comes next.
    Blob {
        /// Counted from 0, together with the pieces of payloads.
        number: u64,
        /// The blob goes on with the next piece.
        more: bool,
    },
    /// The caller no longer waits for the reply.
    Cancel,
    /// The end: the reply, or its last part. `number` pieces went before it.
    Reply {
        /// Pieces that went before it.
        number: u64,
        /// The user's 32 bits.
        flags: u32,
    },
    /// The end of a call without a reply. The payload is the reason, if there is more to say.
    Failure(Status),
}

/// The fate of a call that was not answered. The numbers are those of `NATS` services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The request is not well formed.
    Malformed,
    /// The time of the call is over.
    TimedOut,
    /// The request or the reply is too long.
    TooLong,
    /// As many calls are in progress as may be; this one was not begun.
    Busy,
    /// The worker gave the request up.
    Failed,
    /// The worker died with the request.
    WorkerDied,
    /// No worker is attached; the request was not begun.
    NoWorker,
}

impl Status {
    /// All of them.
    pub const ALL: [Status; 7] = [
        Status::Malformed,
        Status::TimedOut,
        Status::TooLong,
        Status::Busy,
        Status::Failed,
        Status::WorkerDied,
        Status::NoWorker,
    ];

    /// Its number on the wire.
    pub fn code(self) -> u64 {
        match self {
            Status::Malformed => 400,
            Status::TimedOut => 408,
            Status::TooLong => 413,
            Status::Busy => 429,
            Status::Failed => 500,
            Status::WorkerDied => 502,
            Status::NoWorker => 503,
        }
    }

    /// Any number: one that is not known says that the request was given up.
    fn of(code: u64) -> Status {
        Status::ALL.into_iter().find(|status| status.code() == code).unwrap_or(Status::Failed)
    }

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Status::Malformed => "the request is not well formed",
            Status::TimedOut => "the time of the call is over",
            Status::TooLong => "the request or the reply is too long",
            Status::Busy => "too many calls are in progress",
            Status::Failed => "the worker gave the request up",
            Status::WorkerDied => "the worker died with the request",
            Status::NoWorker => "no worker is attached",
        }
    }

    /// Its label in the figures.
    pub fn name(self) -> &'static str {
        match self {
            Status::Malformed => "malformed",
            Status::TimedOut => "timed_out",
            Status::TooLong => "too_long",
            Status::Busy => "busy",
            Status::Failed => "failed",
            Status::WorkerDied => "worker_died",
            Status::NoWorker => "no_worker",
        }
    }
}

/// Headers with a value that the mapping does not know: the name of the header, and the expected
/// value.
pub type Wrong = &'static str;

impl Call {
    /// Reads the headers of a request.
    ///
    /// # Errors
    ///
    /// In words, the fault of the headers.
    pub fn read(headers: Option<&HeaderMap>) -> Result<Call, Wrong> {
        let Some(headers) = headers else { return Ok(Call::default()) };
        let knows_steps = match number(headers, CALL)? {
            None => false,
            Some(VERSION) => true,
            Some(_) => return Err("Pipework-Call: another version than 1"),
        };
        let (is_probe, is_blob) = match text(headers, STEP) {
            None => (false, false),
            Some("probe") => (true, false),
            Some("blob") if knows_steps => (false, true),
            Some("blob") => return Err("Pipework-Step: blob without Pipework-Call"),
            Some(_) => return Err("Pipework-Step: not of a request"),
        };
        let more = mark(headers, MORE)?;
        if more && !knows_steps {
            return Err("Pipework-More: without Pipework-Call");
        }
        let timeout = number(headers, TIMEOUT)?.map(Duration::from_millis);
        Ok(Call { knows_steps, is_probe, is_blob, timeout, flags: flags(headers)?, more })
    }

    /// The headers that say it.
    pub fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.knows_steps {
            headers.insert(CALL, VERSION.to_string());
        }
        if self.is_probe {
            headers.insert(STEP, "probe");
        }
        if self.is_blob {
            headers.insert(STEP, "blob");
        }
        if let Some(timeout) = self.timeout {
            headers.insert(TIMEOUT, timeout.as_millis().min(u128::from(u64::MAX)).to_string());
        }
        add(&mut headers, self.flags, self.more);
        headers
    }
}

impl Step {
    /// Reads the headers of a message in the middle of a call, or at its end.
    ///
    /// # Errors
    ///
    /// In words, the fault of the headers.
    pub fn read(headers: Option<&HeaderMap>) -> Result<Step, Wrong> {
        let Some(headers) = headers else { return Ok(Step::Reply { number: 0, flags: 0 }) };
        if let Some(code) = number(headers, ERROR_CODE)? {
            return Ok(Step::Failure(Status::of(code)));
        }
        let part = number(headers, PART)?;
        Ok(match (text(headers, STEP), part) {
            (None, number) => Step::Reply { number: number.unwrap_or(0), flags: flags(headers)? },
            (Some("accepted"), _) => Step::Accepted,
            (Some("cancel"), _) => Step::Cancel,
            (Some("ack"), Some(number)) => Step::Ack(number),
            (Some("part"), Some(number)) => {
                Step::Part { number, more: mark(headers, MORE)?, flags: flags(headers)? }
            }
            (Some("blob"), Some(number)) => Step::Blob { number, more: mark(headers, MORE)? },
            (Some("ack" | "part" | "blob"), None) => return Err("Pipework-Part: missing"),
            (Some(_), _) => return Err("Pipework-Step: not known"),
        })
    }

    /// The headers that say it; none for a reply of one message and without flags.
    pub fn headers(&self) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        let mut step = |name: &str| headers.insert(STEP, name);
        match self {
            Step::Accepted => step("accepted"),
            Step::Cancel => step("cancel"),
            Step::Ack(number) => {
                step("ack");
                headers.insert(PART, number.to_string());
            }
            Step::Part { number, more, flags } => {
                step("part");
                headers.insert(PART, number.to_string());
                add(&mut headers, *flags, *more);
            }
            Step::Blob { number, more } => {
                step("blob");
                headers.insert(PART, number.to_string());
                add(&mut headers, 0, *more);
            }
            Step::Reply { number: 0, flags: 0 } => return None,
            Step::Reply { number, flags } => {
                if *number > 0 {
                    headers.insert(PART, number.to_string());
                }
                add(&mut headers, *flags, false);
            }
            Step::Failure(status) => {
                headers.insert(ERROR_CODE, status.code().to_string());
                headers.insert(ERROR, status.text());
            }
        }
        Some(headers)
    }
}

fn add(headers: &mut HeaderMap, flags: u32, more: bool) {
    if flags != 0 {
        headers.insert(FLAGS, flags.to_string());
    }
    if more {
        headers.insert(MORE, "1");
    }
}

pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
    headers.get(name).map(|value| value.as_str())
}

pub(crate) fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, Wrong> {
    let Some(text) = text(headers, name) else { return Ok(None) };
    // As they are written: `parse` alone takes a sign as well.
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).map(Some).ok_or("a header that is a number has another value")
}

fn flags(headers: &HeaderMap) -> Result<u32, Wrong> {
    let flags = number(headers, FLAGS)?.unwrap_or(0);
    u32::try_from(flags).map_err(|_| "Pipework-Flags: more than 32 bits")
}

pub(crate) fn mark(headers: &HeaderMap, name: &'static str) -> Result<bool, Wrong> {
    match text(headers, name) {
        None => Ok(false),
        Some("1") => Ok(true),
        Some(_) => Err("Pipework-More: not 1"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn vectors(of: &str) -> Vec<Value> {
        let all: Value = serde_json::from_str(include_str!("../../../vectors/nats/headers.json")).unwrap();
        all[of].as_array().unwrap().clone()
    }

    fn headers(vector: &Value) -> HeaderMap {
        let pairs = vector["headers"].as_object().unwrap().iter();
        let mut headers = HeaderMap::new();
        pairs.for_each(|(name, value)| headers.insert(name.as_str(), value.as_str().unwrap()));
        headers
    }

    /// Writing gives the headers that were read, unless the vector says that they are only read.
    fn is_written(vector: &Value, written: HeaderMap) {
        if vector["only_read"] != true {
            assert_eq!(written, headers(vector), "{}", vector["name"]);
        }
    }

    #[test]
    fn requests_match_the_vectors() {
        for vector in vectors("requests") {
            let read = Call::read(Some(&headers(&vector)));
            if vector["malformed"] == true {
                assert!(read.is_err(), "{}", vector["name"]);
                continue;
            }
            let meant = &vector["call"];
            let is = |name: &str| meant[name] == true;
            let call = Call {
                knows_steps: is("knows_steps"),
                is_probe: is("is_probe"),
                is_blob: is("is_blob"),
                timeout: meant["timeout_ms"].as_u64().map(Duration::from_millis),
                flags: meant["flags"].as_u64().unwrap_or(0) as u32,
                more: is("more"),
            };
            assert_eq!(read, Ok(call), "{}", vector["name"]);
            is_written(&vector, call.headers());
        }
        assert_eq!(Call::read(None), Ok(Call::default()));
    }

    #[test]
    fn steps_match_the_vectors() {
        for vector in vectors("steps") {
            let read = Step::read(Some(&headers(&vector)));
            if vector["malformed"] == true {
                assert!(read.is_err(), "{}", vector["name"]);
                continue;
            }
            let number = vector["number"].as_u64().unwrap_or(0);
            let (flags, more) = (vector["flags"].as_u64().unwrap_or(0) as u32, vector["more"] == true);
            let step = match vector["step"].as_str().unwrap() {
                "reply" => Step::Reply { number, flags },
                "accepted" => Step::Accepted,
                "cancel" => Step::Cancel,
                "ack" => Step::Ack(number),
                "part" => Step::Part { number, more, flags },
                "blob" => Step::Blob { number, more },
                _ => Step::Failure(Status::of(vector["code"].as_u64().unwrap())),
            };
            assert_eq!(read, Ok(step), "{}", vector["name"]);
            is_written(&vector, step.headers().unwrap_or_default());
        }
        assert_eq!(Step::read(None), Ok(Step::Reply { number: 0, flags: 0 }));
    }
}

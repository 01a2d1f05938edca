//! How ends are made: options of JavaScript to the core's.

use std::time::Duration;

use napi::bindgen_prelude::Uint8Array;
use napi_derive::napi;
use pipework::atomic;

use crate::value::milliseconds;

/// The options; `lib/options.js` has checked their ranges. Times are milliseconds.
#[napi(object, object_to_js = false)]
pub struct Options {
    pub mixed: Option<bool>,
    pub bursts: Option<bool>,
    pub strict: Option<bool>,
    pub zstd: Option<Zstd>,
    pub keep_compressed: Option<bool>,
    pub max_message: Option<f64>,
    pub max_unfinished: Option<f64>,
    pub read_size: Option<f64>,
    /// Infinity: until the end of the pipe.
    pub frame_timeout: Option<f64>,
    pub max_pending: Option<f64>,
    pub or_print: Option<bool>,
    pub spin: Option<f64>,
}

/// How to compress.
#[napi(object, object_to_js = false)]
pub struct Zstd {
    pub level: i32,
    pub dictionary: Option<Uint8Array>,
    pub accept_unchecked: bool,
}

impl Options {
    pub(super) fn options(&self) -> atomic::Options {
        let mut options = atomic::Options::new();
        macro_rules! set {
            ($($name:ident: $of:expr;)*) => {
                $(if let Some(value) = self.$name {
                    options = options.$name($of(value));
                })*
            };
        }
        let bytes = |bytes: f64| bytes as usize;
        let time = |time: f64| if time.is_finite() { milliseconds(time) } else { Duration::MAX };
        set! {
            mixed: bool::from; bursts: bool::from; strict: bool::from; keep_compressed: bool::from;
            max_message: bytes; max_unfinished: bytes; read_size: bytes; frame_timeout: time;
            max_pending: bytes; or_print: bool::from; spin: milliseconds;
        }
        match &self.zstd {
            Some(zstd) => options.zstd(zstd.zstd()),
            None => options,
        }
    }
}

impl Zstd {
    pub(super) fn zstd(&self) -> atomic::Zstd {
        let zstd = atomic::Zstd::new().with_level(self.level).accept_unchecked(self.accept_unchecked);
        match &self.dictionary {
            Some(dictionary) => zstd.with_dictionary(dictionary.to_vec()),
            None => zstd,
        }
    }
}

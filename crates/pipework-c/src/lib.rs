//! pipework: whole messages, calls and bytes between the processes and threads of one machine.
//!
//! ```c
//! #include <pipework.h>
//! #include <stdio.h>
//! #include <sys/wait.h>
//! #include <unistd.h>
//!
//! static int fail(const pwk_error *error) {
//!     char text[256];
//!     pwk_error_text(error, text, sizeof text);
//!     return fprintf(stderr, "%s\n", text), 1;
//! }
//!
//! static int serve(pwk_segment *segment) {
//!     pwk_error error;
//!     pwk_server *server = NULL;
//!     pwk_buffer data = PWK_BUFFER; // grown by the library, used again and again
//!     pwk_request request;
//!     pwk_status status = pwk_server_new(segment, NULL, &server, &error);
//!     while (status == PWK_OK || status == PWK_INTERRUPTED) { // after a signal: the same call again
//!         status = pwk_server_recv(server, pwk_in_ms(500), &data, &request, &error);
//!         if (status == PWK_OK) {
//!             status = pwk_server_reply(server, request.ticket, data.data, data.len, &error);
//!         }
//!     }
//!     pwk_buffer_free(&data);
//!     pwk_server_free(server);
//!     return status == PWK_TIMED_OUT ? 0 : fail(&error);
//! }
//!
//! int main(void) {
//!     pwk_error error;
//!     pwk_segment *segment = NULL;
//!     pwk_client *client = NULL;
//!     pwk_buffer reply = PWK_BUFFER;
//!     pwk_segment_options options;
//!     pwk_segment_options_init(&options, sizeof options);
//!     options.slots = 8;
//!     if (pwk_segment_anonymous(&options, &segment, &error) != PWK_OK) return fail(&error);
//!     if (fork() == 0) _exit(serve(segment));
//!     if (pwk_client_new(segment, NULL, &client, &error) != PWK_OK) return fail(&error);
//!     // PWK_PEER_DIED within 250 ms, had the server been killed with the request.
//!     if (pwk_client_call(client, "hello", 5, pwk_in_ms(5000), &reply, &error) != PWK_OK) {
//!         return fail(&error);
//!     }
//!     printf("%.*s\n", (int)reply.len, (const char *)reply.data);
//!     pwk_buffer_free(&reply);
//!     pwk_client_free(client);
//!     pwk_segment_free(segment);
//!     return wait(NULL) < 0;
//! }
//! ```
//!
//! A program is compiled and linked with
//!
//! ```text
//! cc program.c $(pkg-config --cflags --libs pipework)
//! ```
//!
//! Rules for all functions:
//!
//! 1. Names. A function on a handle is pwk_TYPE_VERB, and so is one that makes it. `_pair` makes
//!    both ends of a pipe. A `try_` function never waits, and returns PWK_WOULD_BLOCK where there
//!    is nothing now. A `_message` function is the full form of the one without: it has the 32 bits
//!    of flags that go with a payload, and results that few programs ask for. A `_blobs`
//!    function takes and gives blobs as well.
//! 2. Results. A pwk_status is PWK_OK, which is 0, or says why the call failed. A program that
//!    wants to know more passes a pwk_error of its own: it is filled in when a call fails (but
//!    not by the PWK_WOULD_BLOCK of a `try_` function) and untouched otherwise. Results go where
//!    a pointer says, and are written when the call succeeds, unless the function says otherwise.
//!    If a result is not wanted, its pointer may be NULL; a new handle is always wanted. errno is
//!    no part of this, and is left as it was.
//! 3. Deadlines are absolute times: see pwk_deadline.
//! 4. Ownership. A handle is given back to its `_free`, which takes NULL, too. Nothing is freed
//!    with free(). Data in a pwk_buffer is the program's; a pwk_bytes, a pwk_space or the data of
//!    a pwk_item is lent until the next call on the same handle; the bytes of a blob until its handle
//!    is freed. Arguments are copied, strings too.
//! 5. Options are structs with `size` first, which `_options_init` fills in with the defaults;
//!    NULL means the defaults. Later versions add fields at the end. A program that was compiled
//!    for a later version gets PWK_INVALID if it sets a field that this one does not know.
//!    Structs of facts that are filled in come with their size for the same reason.
//! 6. Threads. Each type says which threads may use it. While one is freed, no thread may use it.
//! 7. Signals. A handler that ran ends a wait with PWK_INTERRUPTED, and nothing is lost: call
//!    again. (Only pwk_client_call has cancelled its call by then, and pwk_atomic_writer_close has
//!    closed.) A program may set a function that decides instead: pwk_set_interrupt_hook. No function
//!    but pwk_version may be called in a handler.
//! 8. Processes. A child that was forked may use what it inherits, as each module says. SIGPIPE
//!    never comes from here. Descriptors that are passed in are lent for the call, unless a
//!    pwk_fd_how says otherwise; those that come out are the program's, and closed when another
//!    program is executed.
//! 9. NULL where it is not allowed, more bytes than PTRDIFF_MAX, or a struct of size 0 is
//!    PWK_INVALID, and pwk_error.op names the function. NULL with length 0 is an empty payload.
//! 10. A program may ask whether pwk_abi() is PWK_ABI: if not, it was compiled for another library.

// The map, in reading order:
//
// - `error.rs` has the status that every function returns.
// - `edge.rs` is the boundary: pointers, structs and descriptors of C, and panics that end there.
//   The types of arguments (`In`, `InOut`, `Out`, `Handle`, `Lent`, `Space`, `Number`) are in it.
// - `text.rs`, `version.rs`, `deadline.rs`, `interrupt.rs`, `bytes.rs`, `descriptor.rs`,
//   `defaults.rs`: shared by all modules.
// - A module is a folder, with a file for each type of handle: `atomic/` has `options.rs`,
//   `item.rs`, `reader.rs` and `writer.rs`; `reqrep/` has `segment.rs`, `client.rs`, `stream.rs`,
//   `server.rs` and `blob.rs`; `broadcast/` has `channel.rs`, `publisher.rs` and `subscriber.rs`;
//   `pipe/` has `ends.rs`, `reader.rs` and `writer.rs`.
//
// `bindings.rs` is for bindings of other languages.
//
// A function's body is one expression: convert, call the core, convert. A test writes
// include/pipework.h from these files, in the order of the `mod` lines: see `tests/it/header.rs`.
// tests/c has one program for each module, which calls every function of it.

// Names and types are those of C; the text above says what its programs promise.
#![allow(non_camel_case_types)]

pub mod error;
pub mod edge;
pub mod text;
pub mod version;
pub mod deadline;
pub mod interrupt;
pub mod bytes;
pub mod descriptor;
pub mod defaults;
pub mod atomic;
pub mod reqrep;
pub mod broadcast;
pub mod pipe;
pub mod fd;
pub mod bindings;
